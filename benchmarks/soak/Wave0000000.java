/** The class that Tide loads under another name each time. */
public class Wave0000000 {
    public static int run(int n) {
        int sum = n;
        for (int i = 0; i < 20; i++) sum = step(sum, i);
        return sum;
    }

    static int step(int sum, int i) {
        return (sum & 1) == 0 ? sum * 31 + i : sum ^ i * 17;
    }
}
