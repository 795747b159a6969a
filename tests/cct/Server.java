/** A thread whose lower frames never return. */
public class Server {
    static int sink;

    static void leaf(int n) { sink += n; }
    static void handle(int n) { leaf(n); leaf(n + 1); }

    static void serve(long until) throws Exception {
        for (int k = 0; System.currentTimeMillis() < until; k++) {
            handle(k);
            if (k % 100 == 0) Thread.sleep(1);
        }
    }

    static void inner(long until) throws Exception { serve(until); }
    static void outer(long until) throws Exception { inner(until); }

    public static void main(String[] arguments) throws Exception {
        outer(System.currentTimeMillis() + Long.parseLong(arguments[0]));
    }
}
