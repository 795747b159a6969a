/** Virtual threads that yield in the middle of their calls. */
public class Virtual {
    static volatile int sink;
    static int leaf(int n) { sink = n; return n; }
    static int before(int n) { return leaf(n); }
    static int after(int n) { return leaf(n) + leaf(n); }
    static int inner(int n) { before(n); Thread.yield(); return after(n); }
    static int task(int n) { int x = inner(n); return leaf(n) + x; }
    static void tasks(int rounds) { for (int k = 0; k < rounds; k++) task(k); }
    static Thread start(Runnable r) throws Exception {
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, r);
    }
    static void run(int threads, int rounds) throws Exception {
        Thread[] all = new Thread[threads];
        for (int k = 0; k < threads; k++) all[k] = start(() -> tasks(rounds));
        for (Thread each : all) each.join();
    }
    public static void main(String[] a) throws Exception {
        run(1, Integer.parseInt(a[0]));
        run(Integer.parseInt(a[1]), Integer.parseInt(a[2]));
        System.out.println(sink);
    }
}
