/** Calls methods a known number of times in each way in which a compiler may inline them. */
public class Ways {
    static int sink;
    static int[] data = new int[256];

    static class Base { int b; Base(int b) { this.b = b; } }
    static class Derived extends Base {
        int x; Object o;
        Derived(int x) { this(x, null); }
        Derived(int x, Object o) { super(x); this.x = x; this.o = o == null ? this : o; }
    }

    static int chained(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) { Derived d = new Derived(i); s += d.x + (d.o == d ? 1 : 2); data[i & 255] = s; if ((i & 63) == 0) last = d; }
        return s;
    }
    static Object last;

    static int same(int a) { return a % 7 == 3 ? a ^ sink : a + 1; }
    static int twice(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) s += same(i) * same(s);
        return s;
    }

    static int straight(int a) { return a * 31 + (a >>> 3) ; }
    static int looped(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) s ^= straight(i + s);
        return s;
    }

    static int element(int[] d, int i) { return d[i & 255]; }
    static int loads(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) s += element(data, i * 7);
        return s;
    }

    static int own(int a) { int s = a; for (int i = 0; i < 5; i++) s = s * 17 ^ data[s & 255]; return s; }
    static int nested(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) if ((i & 3) != 0) s += own(i);
        return s;
    }

    static int down(int k, int a) { return k == 0 ? a ^ sink : down(k - 1, a * 3) + 1; }
    static int recursive(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) s += down(3, i + s);
        return s;
    }

    static int within(int a) { return a % 5 == 0 ? a ^ sink : a - sink; }
    static int replaced(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) s += within(i ^ s);
        return s;
    }

    static int rare(int a) { if (a < 0) sink = a; return a & 1023; }
    static int deopt(int n, int from) {
        int s = 0;
        for (int i = 0; i < n; i++) s += rare(i - from);
        return s;
    }

    static final IllegalStateException ONE = new IllegalStateException();
    static int thrower(int a) { if ((a & 15) == 0) throw ONE; return a + sink; }
    static int caught(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) try { s += thrower(i); } catch (IllegalStateException e) { s--; }
        return s;
    }

    static int known(int n) {
        int s = 0;
        for (int i = 0; i < n; i++) s += Math.max(s ^ i, i) + Integer.bitCount(s);
        return s;
    }

    public static void main(String[] args) {
        int rounds = Integer.parseInt(args[0]), n = Integer.parseInt(args[1]);
        int s = 0;
        for (int r = 0; r < rounds; r++) {
            s += chained(n) + twice(n) + looped(n) + loads(n) + nested(n) + recursive(n) + caught(n) + known(n);
            s += deopt(n, r == rounds / 2 ? n / 2 : 0);
        }
        s += replaced(rounds * n);
        System.out.println(s);
    }
}
