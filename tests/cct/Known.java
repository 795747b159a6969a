import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.security.AccessController;
import java.security.PrivilegedAction;
import java.util.Arrays;
import java.util.Comparator;
import java.util.function.IntUnaryOperator;

/**
 * A tree of calls that is known, at stock settings: a round makes the same calls each time. The first thread makes
 * rounds until all is compiled; the second one's are counted.
 */
public class Known {
    static volatile int sink;

    static int leaf(int n) { sink = n; return n; }

    // recursion
    static int down(int n) { return n == 0 ? leaf(0) : down(n - 1) + 1; }
    static int even(int n) { return n == 0 ? leaf(1) : odd(n - 1); }
    static int odd(int n) { return n == 0 ? leaf(0) : even(n - 1); }
    static int fib(int n) { return n < 2 ? leaf(n) : fib(n - 1) + fib(n - 2); }

    // exceptions
    static final IllegalStateException THROWN = new IllegalStateException();
    static int thrower(int n) { if (n == 0) { leaf(2); throw THROWN; } return thrower(n - 1) + 1; }
    static int caught() { try { return thrower(4); } catch (IllegalStateException e) { return leaf(1); } }
    static int passed() { try { return thrower(2); } finally { leaf(3); } }
    static int rethrown() { try { return passed(); } catch (RuntimeException e) { return leaf(1); } }
    static int made(int n) { throw new IllegalArgumentException("made " + n); }
    static int fresh(int n) { try { return made(n); } catch (IllegalArgumentException e) { return leaf(1); } }

    // callbacks
    static int applied(IntUnaryOperator f) { return f.applyAsInt(3); }
    static int lambdas(int n) { return applied(Known::leaf) + applied(x -> leaf(x + n)); }
    static int privileged() { return AccessController.doPrivileged((PrivilegedAction<Integer>) () -> leaf(7)); }
    static final Method LEAF;
    static final MethodHandle HANDLE, BOUND;
    static MethodHandle open;
    static int reflected() throws Exception { return (Integer) LEAF.invoke(null, 5); }
    static int handled() throws Throwable { return (int) HANDLE.invokeExact(5) + (int) BOUND.invokeExact(); }
    static int opened() throws Throwable { return (int) open.invokeExact(6); }

    static class Order implements Comparator<Integer> {
        public int compare(Integer a, Integer b) { leaf(a); return a - b; }
    }
    static final Order ORDER = new Order();
    static Integer[] given = {8, 7, 6, 5, 4, 3, 2, 1, 0};
    static int sorted() {
        Integer[] sorted = given.clone();
        Arrays.sort(sorted, ORDER);
        return sorted[0];
    }

    static {
        try {
            LEAF = Known.class.getDeclaredMethod("leaf", int.class);
            HANDLE = MethodHandles.lookup().findStatic(Known.class, "leaf", MethodType.methodType(int.class, int.class));
            BOUND = MethodHandles.insertArguments(HANDLE, 0, 9);
            open = HANDLE;
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    // constructors, and calls of several kinds of receivers
    static class Base { int b; Base(int b) { this.b = leaf(b); } }
    static class Derived extends Base { Derived() { this(5); } Derived(int b) { super(b); } }
    static abstract class Shape { abstract int size(); }
    static class One extends Shape { int size() { return leaf(1); } }
    static class Two extends Shape { int size() { return leaf(1) + leaf(2); } }
    static class Three extends Shape { int size() { return leaf(3); } }
    static final Shape[] SHAPES = {new One(), new Two(), new Three(), new Two()};
    static int sizes() { int sum = 0; for (Shape shape : SHAPES) sum += shape.size(); return sum; }
    static synchronized int locked(int n) { return leaf(n); }
    static int constructed() { return new Derived().b; }

    static int round(int n) throws Throwable {
        return down(5) + even(4) + fib(5) + caught() + rethrown() + fresh(n) + lambdas(n) + privileged() + reflected()
            + handled() + opened() + sorted() + constructed() + sizes() + locked(n);
    }

    static void rounds(int count) throws Throwable { for (int k = 0; k < count; k++) round(k); }

    static void thread(String name, int count) throws InterruptedException {
        Thread made = new Thread(() -> {
            try {
                rounds(count);
            } catch (Throwable e) {
                throw new AssertionError(e);
            }
        }, name);
        made.start();
        made.join();
    }

    public static void main(String[] arguments) throws Throwable {
        thread("warm", Integer.parseInt(arguments[0]));
        thread("counted", Integer.parseInt(arguments[1]));
        System.out.println(sink);
    }
}
