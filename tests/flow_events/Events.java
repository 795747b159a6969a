import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/** Makes HotSpot do each of the things that are hard to follow in a trace, many times, in methods named after them. */
public class Events {
    static int sink;

    public static void main(String[] args) throws Throwable {
        int rounds = Integer.parseInt(args[0]);
        Events[] nothing = new Events[8];
        Shape[] shapes = {new Square(3), new Circle(2), new Rectangle(2, 5), new Square(7)};
        Named[] named = {new Square(3), new Circle(2), new Rectangle(2, 5), new Circle(9)};
        MethodHandle handle = MethodHandles.lookup()
            .findStatic(Events.class, "handled", MethodType.methodType(int.class, int.class));
        Base base = new Base();
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            sum += exceptionCaught(i) + exceptionAcrossFrames(i);
            sum += implicitNull(i % 4 == 0 ? null : shapes[0]);
            sum += virtualCall(shapes, i) + interfaceCall(named, i);
            sum += methodHandle(handle, i) + stringSwitch(i);
            sum += nativeCall(shapes[i % 4]);
            sum += speculative(i < rounds / 2 ? shapes[0] : shapes[i % 4]);
            sum += hierarchy(i < 3 * rounds / 4 ? base : i % 2 == 0 ? base : later());
        }
        sum += loop(40 * rounds) + safepoints(rounds);
        System.out.println(sum);
    }

    static int exceptionCaught(int i) {
        try {
            if (i % 5 == 0) throw new IllegalStateException();
            return i;
        } catch (IllegalStateException e) {
            return 1;
        }
    }

    static int exceptionAcrossFrames(int i) {
        try {
            return thrower(i) + 1;
        } catch (ArithmeticException | ArrayIndexOutOfBoundsException e) {
            return 2;
        }
    }

    static int thrower(int i) {
        int[] few = new int[4];
        return few[i % 7] + deeper(i, i % 3);
    }

    static int deeper(int i, int by) {
        return i / by;
    }

    /** Faults: compiled code dereferences, and the signal handler turns that into the exception. */
    static int implicitNull(Shape shape) {
        try {
            return shape.size;
        } catch (NullPointerException e) {
            return 3;
        }
    }

    static int virtualCall(Shape[] shapes, int i) {
        return shapes[i % shapes.length].area();
    }

    static int interfaceCall(Named[] named, int i) {
        return named[i % named.length].length();
    }

    static int handled(int i) {
        return i ^ 5;
    }

    /** The handle is no constant: each call goes through the linkers. */
    static int methodHandle(MethodHandle handle, int i) throws Throwable {
        return (int) handle.invokeExact(i);
    }

    static int stringSwitch(int i) {
        return ("k" + i % 3).hashCode();
    }

    /** Not an intrinsic: a native wrapper. */
    static int nativeCall(Object of) {
        return of.getClass().isInstance(of) ? Thread.currentThread().isInterrupted() ? 1 : probe() : 0;
    }

    static int probe() {
        return (int) (Runtime.getRuntime().freeMemory() & 1);
    }

    /** One receiver class in the first half: compiled for it, an uncommon trap in the second. */
    static int speculative(Shape shape) {
        int sum = 0;
        for (int i = 0; i < 32; i++) sum += shape.area() + i;
        return sum;
    }

    /** Compiled while one class has value(); when another is loaded that code must not be entered any more. */
    static int hierarchy(Base base) {
        int sum = 0;
        for (int i = 0; i < 32; i++) sum += base.value() + i;
        return sum;
    }

    static Base later() {
        return new Later();
    }

    static class Base {
        int value() {
            return 11;
        }
    }

    static class Later extends Base {
        @Override int value() {
            return 12;
        }
    }

    /** Called once: the frame that runs it is replaced on the stack. */
    static long loop(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) sum = sum * 31 + (i ^ sink);
        return sum;
    }

    static volatile boolean stop;
    static volatile long progress;

    /** Collections while this thread is in compiled code, which only a poll stops: it leaves `polled` after them alone. */
    static long safepoints(int n) throws InterruptedException {
        long sum = 0;
        for (int i = 0; i < 20_000; i++) { // compiled from then on, in the foreground, for either way out of the loop
            stop = i % 4 == 0;
            sum += polled(8);
        }
        for (int i = 0; i < 10; i++) {
            stop = false;
            Thread collector = new Thread(() -> {
                long begun = progress;
                while (progress < begun + 2) Thread.onSpinWait();
                System.gc();
                stop = true;
            });
            collector.start();
            sum += polled(Long.MAX_VALUE);
            collector.join();
        }
        for (int i = 0; i < 50; i++) sum += counted(20L * n);
        return sum;
    }

    static long polled(long most) {
        long i = 0;
        while (!stop && i < most) {
            progress = progress + 1;
            i++;
        }
        return i;
    }

    static long counted(long n) {
        long sum = 0;
        for (long i = 0; i < n; i++) sum += i ^ sink;
        return sum;
    }

    interface Named {
        int length();
    }

    abstract static class Shape implements Named {
        int size = 4;

        abstract int area();
    }

    static final class Square extends Shape {
        final int a;

        Square(int a) {
            this.a = a;
        }

        @Override int area() {
            return a * a;
        }

        @Override public int length() {
            return 6;
        }
    }

    static final class Circle extends Shape {
        final int r;

        Circle(int r) {
            this.r = r;
        }

        @Override int area() {
            return 3 * r * r;
        }

        @Override public int length() {
            return 7;
        }
    }

    static final class Rectangle extends Shape {
        final int a, b;

        Rectangle(int a, int b) {
            this.a = a;
            this.b = b;
        }

        @Override int area() {
            return a * b;
        }

        @Override public int length() {
            return 9;
        }
    }
}
