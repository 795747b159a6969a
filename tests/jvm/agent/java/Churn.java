import java.lang.reflect.Method;

/** Loads one class again and again, runs it until it is compiled, and lets go of it: its code is unloaded. */
class Churn {
    static class Loader extends ClassLoader {
        final byte[] data;

        Loader(byte[] data) {
            this.data = data;
        }

        Class<?> define() {
            return defineClass("Load", data, 0, data.length);
        }
    }

    static void run(int rounds) throws Exception {
        byte[] data;
        try (var stream = Churn.class.getResourceAsStream("Load.class")) {
            data = stream.readAllBytes();
        }
        for (int round = 0; round < rounds; round++) {
            Method method = new Loader(data).define().getMethod("run", int.class);
            for (int i = 0; i < 60; i++) Subject.sink += (int) method.invoke(null, 300);
            method = null;
            if (round % 5 == 4) System.gc();
        }
    }
}
