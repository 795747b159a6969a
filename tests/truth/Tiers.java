/**
 * Methods whose versions follow one another while two threads run them: C1 with few counters, C1 with all, C2, back to the
 * interpreter when a class is loaded or a type is met that was not expected, and up again. Times: rounds.
 */
public class Tiers {
    interface Step {
        int of(int n);
    }

    static final class Plain implements Step {
        public int of(int n) {
            return n + 1;
        }
    }

    static class Turn implements Step {
        public int of(int n) {
            return n % 7 == 0 ? n * 3 : n - 1;
        }
    }

    static final class Late extends Turn {
        @Override
        public int of(int n) {
            return super.of(n) ^ 5;
        }
    }

    static int own(int n) {
        return (n & 3) == 0 ? n * 31 : n >>> 1;
    }

    static int along(Step step, int n) {
        return step.of(n) + own(n);
    }

    static int around(Step[] steps, int from) {
        int sum = 0;
        for (int i = from; i < from + 40; i++) sum += along(steps[i % steps.length], i);
        return sum;
    }

    static int caught(Object[] things, int i) {
        try {
            return things[i % things.length].hashCode() & 1;
        } catch (NullPointerException e) {
            return 2;
        }
    }

    static void run(int rounds, int from) {
        Step[] steps = {new Plain(), new Plain()};
        Object[] things = {"a", 1, 2L, "b"};
        int sum = 0;
        for (int i = 0; i < rounds; i++) {
            if (i == rounds / 3) steps = new Step[] {new Plain(), new Turn()};
            if (i == rounds / 2) steps = new Step[] {new Plain(), new Turn(), new Late()};
            if (i == 2 * rounds / 3) things[2] = null;
            sum += around(steps, from + i) + caught(things, i);
        }
        System.out.println(sum);
    }

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        Thread other = new Thread(() -> run(rounds, 100));
        other.start();
        run(rounds, 0);
        other.join();
    }
}
