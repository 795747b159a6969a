/** Calls methods a known number of times, all inlined into one. */
public class Inlined {
    static int sink;
    int x = 3;

    public static void main(String[] args) {
        int n = Integer.parseInt(args[0]);
        Inlined object = new Inlined();
        int sum = 0;
        for (int i = 0; i < n; i++) sum += outer(object, i);
        System.out.println(sum);
    }

    static int outer(Inlined object, int i) {
        return object.get() + branching(i) + (i % 4 == 0 ? looping(5) : 0);
    }

    int get() {
        return x;
    }

    static int branching(int a) {
        return a % 3 == 0 ? a : a + 1;
    }

    static int looping(int n) {
        int sum = 0;
        for (int i = 0; i < n; i++) sum += i ^ sink;
        return sum;
    }
}
