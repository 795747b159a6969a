import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Virtual threads that change place, so often or so fast as the test says. */
public class Mounts {
    /** Of the threads' own count. */
    static volatile long yields;

    static Thread start(Runnable body) throws Exception {
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
    }

    static void yields(long times) {
        for (long i = 0; i < times; i++) {
            Thread.yield();
            yields++;
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            long number = words.length > 1 ? Long.parseLong(words[1]) : 0;
            switch (words[0]) {
                case "each" -> {  // word n: so often yields thread n; all at the same time
                    Thread[] threads = new Thread[words.length - 1];
                    for (int i = 0; i < threads.length; i++) {
                        long times = Long.parseLong(words[i + 1]);
                        threads[i] = start(() -> yields(times));
                    }
                    for (Thread thread : threads) thread.join();
                    for (int i = 0; i < threads.length; i++)
                        System.out.println(threads[i].getId() + " " + words[i + 1]);
                }
                case "fast" -> {  // for so many ms
                    yields = 0;
                    long end = System.nanoTime() + number * 1000000;
                    start(() -> { while (System.nanoTime() < end) yields(1); }).join();
                    System.out.println(yields);
                }
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("done " + line);
        }
    }
}
