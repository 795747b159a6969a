/** Calls, branches, switches, exceptions and intrinsics of a known number, in the interpreter. */
public class Methods {
    interface Shape { int area(int k); }
    static class Square implements Shape { public int area(int k) { return k * k; } }
    static class Line implements Shape { public int area(int k) { return k; } }
    static int total;
    static int add(int a, int b) { return a + b; }
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    static int pick(int i) { switch (i & 3) { case 0: return 1; case 1: return 2; case 2: return 3; default: return 4; } }
    static synchronized int locked(int i) { int a = i, b = 1; return a + b; }
    static int thrower(int i) { if (i % 5 == 0) throw new IllegalStateException(); return i; }
    static int catcher(int i) { try { return thrower(i); } catch (IllegalStateException e) { return -1; } }
    static int through(int i) { return catcher(i) + 1; }

    static void round(Shape shape, int i) {
        total = add(total, shape.area(i));
        total += pick(i) + through(i) + Integer.bitCount(i) + (int) (System.nanoTime() & 1);
        total = locked(total);
        long w = 0;
        for (int j = 0; j < 10; j++) w += j;
        total += (int) w;
    }

    static void rounds(int n) {
        Shape[] shapes = {new Square(), new Line()};
        for (int i = 0; i < n; i++) round(shapes[i & 1], i);
        total += fib(12);
        System.out.println(total);
    }

    /** Rounds; milliseconds to wait before them, for the classes to be told. */
    public static void main(String[] arguments) throws Exception {
        Thread.sleep(Integer.parseInt(arguments[1]));
        rounds(Integer.parseInt(arguments[0]));
    }
}
