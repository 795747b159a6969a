/** A recursion 100,000 deep, again and again: each frame is there once a round. */
public class Deep {
    static final int DEPTH = 100_000;
    static volatile int sink;

    static int leaf(int n) { sink = n; return n; }
    static int down(int n) { return n == 0 ? leaf(0) : down(n - 1) + 1; }
    static void rounds(int count, int depth) { for (int k = 0; k < count; k++) down(depth); }

    static void thread(int count, int depth) throws Exception {
        Thread made = new Thread(null, () -> rounds(count, depth), "deep", 1L << 29);
        made.start();
        made.join();
    }

    public static void main(String[] arguments) throws Exception {
        thread(Integer.parseInt(arguments[0]), 10);
        thread(Integer.parseInt(arguments[1]), DEPTH);
        System.out.println(sink);
    }
}
