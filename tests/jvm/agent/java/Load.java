public class Load {
    static int a(int x) {
        return x * 7 + (x >> 3);
    }

    static int b(int x) {
        return a(x) ^ a(x + 1);
    }

    public static int run(int n) {
        int sum = 0;
        for (int i = 0; i < n; i++) sum += b(i);
        return sum;
    }
}
