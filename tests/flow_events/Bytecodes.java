/** Executes bytecodes that the JDK hardly has, in the interpreter, each a known number of times. */
public class Bytecodes {
    static double d = 3;
    static float f = 5;
    static int low, high;

    static void round(int i) {
        d = -d; // dneg
        d = d % 7; // drem
        f = -f; // fneg
        f = f % 3; // frem
        switch (i * 1000) { // lookupswitch
            case 0: low++; break;
            case 2_000_000: high++; break;
            default: break;
        }
    }

    public static void main(String[] arguments) {
        int n = Integer.parseInt(arguments[0]);
        for (int i = 0; i < n; i++) round(i);
        System.out.println(d + f + low + high);
    }
}
