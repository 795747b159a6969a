/** Calls methods of two and three receivers a known number of times, straight and in a loop. */
public class Receivers {
    static int[] data = new int[256], other = new int[256];
    interface Shape { int area(int k); }
    static class Square implements Shape { public int area(int k) { return k * k; } }
    static class Line implements Shape { public int area(int k) { return k; } }
    interface Body { int size(int k); }
    static class Big implements Body { public int size(int k) { data[k & 255] += k; return data[k * 3 & 255]; } }
    static class Small implements Body { public int size(int k) { other[k & 127] ^= k; return other[k * 7 & 255] + 1; } }
    static abstract class Turn { abstract int by(int k); }
    static class Left extends Turn { int by(int k) { data[k & 255] += k; return k ^ 3; } }
    static class Right extends Turn { int by(int k) { data[k & 127] -= k; return k & 77; } }
    static abstract class Mostly { abstract int one(int k); }
    static class Often extends Mostly { int one(int k) { data[k & 15] ^= k; return k * 3; } }
    static class Seldom extends Mostly { int one(int k) { data[k & 31] ^= k; return k * 5; } }
    static class Never extends Mostly { int one(int k) { data[k & 63] ^= k; return k * 7; } }
    static int total;

    static int area(Shape s, int k) { return s.area(k); }
    static int size(Body b, int k) { return b.size(k); }
    static int one(Mostly m, int k) { return m.one(k); }
    static int turns(Turn[] turns, int n) { int t = 0; for (int i = 0; i < n; i++) t += turns[i & 7].by(i); return t; }

    static void round(Shape s, Body b, Mostly m, Turn[] turns, int k) {
        total += area(s, k);
        total ^= size(b, k);
        total += one(m, k);
        total ^= turns(turns, 64);
    }

    /** Rounds, a multiple of 40. */
    public static void main(String[] arguments) {
        Shape[] shapes = {new Square(), new Line(), new Line(), new Line()};
        Body[] bodies = {new Big(), new Small(), new Small(), new Small()};
        Mostly often = new Often(), seldom = new Seldom(), never = new Never();
        Turn left = new Left(), right = new Right();
        Turn[] turns = {left, right, right, right, left, right, left, right};
        int rounds = Integer.parseInt(arguments[0]);
        for (int k = 0; k < rounds; k++) {
            round(shapes[k & 3], bodies[k & 3], k % 40 == 7 ? seldom : k % 40 == 9 ? never : often, turns, k);
        }
        System.out.println(total);
    }
}
