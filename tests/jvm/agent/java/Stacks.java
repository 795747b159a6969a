import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.security.AccessController;
import java.security.PrivilegedAction;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntUnaryOperator;

/** Threads whose stacks are known: each stops somewhere, or goes on and on. "start KIND ROUNDS": the thread does it so
 * often before it stops. */
public class Stacks {
    static final Object held = new Object(), lock = new Object();
    static volatile int sink;

    /** A thread that stops at its last round. */
    static class Worker extends Thread {
        final String kind;
        volatile int rounds;

        Worker(String kind, int rounds) {
            super(kind);
            this.kind = kind;
            this.rounds = rounds;
            setDaemon(true);
        }

        boolean stands() {
            State state = getState();
            return rounds == 0 && (state == State.WAITING || state == State.TIMED_WAITING || state == State.BLOCKED);
        }

        @Override
        public void run() {
            try {
                for (; rounds >= 0; rounds--) round();
            } catch (Throwable e) {
                throw new AssertionError(e);
            }
        }

        @SuppressWarnings("removal")
        void round() throws Throwable {
            switch (kind) {
                case "deep" -> sink += even(150);
                case "reflection" -> Stacks.class.getDeclaredMethod("leaf", Stacks[].class).invoke(null, (Object) null);
                case "lambda" -> lambda(x -> { leaf(null); return x; });
                case "privileged" -> AccessController.doPrivileged((PrivilegedAction<Void>) () -> { leaf(null); return null; });
                case "initializer" -> { if (rounds == 0) Class.forName("Stacks$Initialized"); }
                case "handle" -> sink += (int) HANDLE.invokeExact(3);
                case "monitor" -> { if (rounds == 0) synchronized (held) { sink++; } }
                case "wait" -> { if (rounds == 0) waits(); }
                case "sleep" -> { if (rounds == 0) Thread.sleep(1000000); }
                case "virtual" -> throw new AssertionError();
                case "loop" -> { rounds = 1; left(6); right(6); }
                case "weak" -> base(rounds);
                default -> throw new AssertionError(kind);
            }
        }
    }

    static final MethodHandle HANDLE;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            MethodHandle handled = lookup.findStatic(Stacks.class, "handled", MethodType.methodType(int.class, int.class));
            HANDLE = MethodHandles.filterReturnValue(handled, MethodHandles.identity(int.class));
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    static class Initialized {
        static {
            leaf(null);
        }
    }

    /** A virtual thread cannot leave its carrier while the VM waits for it. */
    static class Pinned {
        static int field;

        static {
            even(20);
        }
    }

    static class Base {
        void call(int rounds) {
            leaf(null);
        }
    }

    static Base receiver = new Base();

    /** Compiled with the knowledge that there is one class: until Derived is loaded. */
    static void base(int rounds) {
        receiver.call(rounds);
        sink++;
    }

    static class Derived extends Base {
        @Override
        void call(int rounds) {
            sink++;
        }
    }

    static int handled(int a) {
        leaf(null);
        return a;
    }

    static void waits() throws InterruptedException {
        Object mine = new Object();
        synchronized (mine) {
            mine.wait();
        }
    }

    static int lambda(IntUnaryOperator operator) {
        return operator.applyAsInt(1);
    }

    static int even(int n) {
        if (n == 0) {
            leaf(null);
            return 0;
        }
        return odd(n - 1) + 1;
    }

    static int odd(int n) {
        return even(n - 1) + 1;
    }

    static void left(int n) {
        if (n > 0) right(n - 1);
        else Thread.yield();
    }

    static void right(int n) {
        if (n > 0) left(n - 1);
        else Thread.yield();
    }

    /** Stops at the last round of a worker. */
    static void leaf(Stacks[] unused) {
        stop(Thread.currentThread() instanceof Worker worker ? worker.rounds : 0);
    }

    static void stop(int rounds) {
        while (rounds == 0) LockSupport.park();
    }

    /** Everything comes and goes: threads, classes, code that is deoptimised, exceptions, objects. */
    static void torture(int milliseconds) throws Exception {
        long end = System.nanoTime() + milliseconds * 1000000L;
        Thread[] threads = {
            new Thread(() -> { while (System.nanoTime() < end) throwing(30); }),
            new Thread(() -> { while (System.nanoTime() < end) shortLived(); }),
            new Thread(() -> { while (System.nanoTime() < end) { left(400); calls(System.nanoTime()); } }),
            new Thread(() -> { while (System.nanoTime() < end) overflow(0); }),
        };
        for (Thread thread : threads) thread.start();
        while (System.nanoTime() < end) Churn.run(5);
        for (Thread thread : threads) thread.join();
    }

    static void throwing(int n) {
        try {
            if (n == 0) sink += unused.length;
            throwing(n - 1);
        } catch (NullPointerException e) {
            sink += e.getStackTrace().length;
            if (n < 20) throw e;
        }
    }

    static int[] unused;

    static int overflow(int n) {
        try {
            return n > 20000 ? n : overflow(n + 1) + 1;
        } catch (StackOverflowError e) {
            return 0;
        }
    }

    static void shortLived() {
        Thread[] all = new Thread[8];
        for (int i = 0; i < all.length; i++) (all[i] = new Thread(() -> { left(20); throwing(4); })).start();
        try {
            for (Thread thread : all) thread.join();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Receivers of few kinds for some time, then of another: code that was compiled for them is given up. */
    static void calls(long seed) {
        int kinds = (int) (seed >> 10 & 3) + 1;
        for (int i = 0; i < 20000; i++) called(BODIES[i % kinds], i);
    }

    static int called(IntUnaryOperator body, int i) {
        return body.applyAsInt(i);
    }

    static final IntUnaryOperator[] BODIES = {
        x -> x + 1,
        x -> { if (x % 997 == 0) Thread.yield(); return x; },
        x -> { synchronized (lock) { return x * 3; } },
        x -> String.valueOf(x).hashCode(),
    };

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        synchronized (held) {
            for (String line; (line = in.readLine()) != null; ) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "start" -> new Worker(words[1], Integer.parseInt(words[2])).start();
                    case "virtual" -> {
                        Runnable pinned = () -> sink += Pinned.field;
                        Runnable loops = () -> { for (;;) left(9); };
                        for (Runnable body : new Runnable[] {pinned, loops, loops})
                            Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
                    }
                    case "settle" -> {
                        for (Thread thread : Thread.getAllStackTraces().keySet())
                            while (thread instanceof Worker worker && !worker.stands()) Thread.sleep(1);
                    }
                    case "derive" -> new Derived().call(0);
                    case "wake" -> {
                        for (Thread thread : Thread.getAllStackTraces().keySet())
                            if (thread.getName().equals(words[1])) LockSupport.unpark(thread);
                    }
                    case "torture" -> torture(Integer.parseInt(words[1]));
                    default -> throw new IllegalArgumentException(line);
                }
                System.out.println("done " + line);
            }
        }
    }
}
