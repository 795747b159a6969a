import java.io.InputStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;

/**
 * Some times a second a thread comes, loads a class of its own, runs it until it is compiled, and goes. Names come again
 * after some classes: the hub keeps so many of them anyway, and would go on filling its table.
 */
public class Tide {
    static volatile int sink;

    static class Loader extends ClassLoader {
        Class<?> define(byte[] data) {
            return defineClass(null, data, 0, data.length);
        }
    }

    /** The template's class file with another name of the same length. */
    static byte[] renamed(byte[] template, int number) {
        byte[] from = "Wave0000000".getBytes(StandardCharsets.US_ASCII);
        byte[] to = String.format("Wave%07d", number).getBytes(StandardCharsets.US_ASCII);
        byte[] data = template.clone();
        for (int i = 0; i + from.length <= data.length; i++) {
            int k = 0;
            while (k < from.length && data[i + k] == from[k]) k++;
            if (k == from.length) System.arraycopy(to, 0, data, i, to.length);
        }
        return data;
    }

    static void wave(byte[] data) {
        try {
            Method method = new Loader().define(data).getMethod("run", int.class);
            for (int i = 0; i < 250; i++) sink += (int) method.invoke(null, i);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Arguments: seconds; waves a second; names. */
    public static void main(String[] arguments) throws Exception {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        long pause = 1_000_000_000L / Long.parseLong(arguments[1]);
        int names = Integer.parseInt(arguments[2]);
        byte[] template;
        try (InputStream stream = Tide.class.getResourceAsStream("Wave0000000.class")) {
            template = stream.readAllBytes();
        }
        long next = System.nanoTime();
        for (int number = 1; System.nanoTime() < end; number++) {
            byte[] data = renamed(template, number % names + 1);
            Thread thread = new Thread(() -> wave(data), "wave " + number);
            thread.start();
            thread.join();
            if (number % 50 == 0) System.gc(); // lets classes go
            next = Math.max(next + pause, System.nanoTime() - pause);
            long wait = next - System.nanoTime();
            if (wait > 0) Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
        }
    }
}
