import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.function.IntUnaryOperator;

/** Does what it is told on standard input, a line at a time, and answers each line with one. */
public class Subject {
    static volatile int sink;

    static int outer(int n) {
        int sum = 0;
        for (int i = 0; i < n; i++) sum += inner(i, n);
        return sum;
    }

    private static int inner(int a, int b) {
        return a * 31 ^ b;
    }

    static synchronized int locked(int a) {
        return a + 1;
    }

    static int work(int rounds) {
        IntUnaryOperator operator = x -> x * 3 + 1;
        int sum = 0;
        for (int i = 0; i < rounds; i++) sum += outer(i % 200) + operator.applyAsInt(i) + locked(i);
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "work" -> sink += work(Integer.parseInt(words[1]));
                case "thread" -> {
                    Thread thread = new Thread(() -> { synchronized (Subject.class) { sink++; } while (true) park(); }, words[1]);
                    thread.setDaemon(true);
                    thread.start();
                }
                case "brief" -> {
                    Thread thread = new Thread(() -> sink++, words[1]);
                    thread.start();
                    thread.join();
                }
                case "churn" -> Churn.run(Integer.parseInt(words[1]));
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("done " + line);
        }
    }

    private static void park() {
        java.util.concurrent.locks.LockSupport.park();
    }
}
