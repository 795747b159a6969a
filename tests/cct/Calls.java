import java.util.function.IntUnaryOperator;

/** A tree of calls that is known: run with everything compiled, nothing inlined, and the same calls each round. */
public class Calls {
    static int sink;

    static int leaf(int n) { sink += n; return sink; }
    static int twice(int n) { return leaf(n) + leaf(n + 1); }
    static int down(int n) { return n == 0 ? leaf(0) : down(n - 1) + 1; }
    static int even(int n) { return n == 0 ? 1 : odd(n - 1); }
    static int odd(int n) { return n == 0 ? 0 : even(n - 1); }
    static int thrower(int n) { if (n == 0) throw new IllegalStateException(); return thrower(n - 1); }
    static int caught() { try { return thrower(2); } catch (IllegalStateException e) { return leaf(1); } }
    static int applied(IntUnaryOperator f) { return f.applyAsInt(3); }

    static class Base { int b; Base(int b) { this.b = leaf(b); } }
    static class Derived extends Base { Derived() { this(5); } Derived(int b) { super(b); } }

    static int round() {
        return twice(1) + down(5) + even(4) + caught() + applied(Calls::leaf) + new Derived().b;
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        Thread other = new Thread(() -> { for (int k = 0; k < rounds; k++) twice(k); }, "other");
        int sum = 0;
        for (int k = 0; k < rounds; k++) sum += round();
        other.start();
        other.join();
        System.out.println(sum);
    }
}
