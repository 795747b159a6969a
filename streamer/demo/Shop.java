import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A small shop that serves requests at a steady rate. Half way through its life a feature flag is turned on and
 * other methods become hot: a profiler of production should notice that.
 *
 * <p>Usage: java Shop SECONDS [REQUESTS_PER_SECOND]
 */
public final class Shop {
    interface Discount {
        long apply(long cents);
    }

    record Percent(int percent) implements Discount {
        @Override
        public long apply(long cents) {
            return cents - cents * percent / 100;
        }
    }

    record Voucher(long cents) implements Discount {
        @Override
        public long apply(long price) {
            return Math.max(0, price - cents);
        }
    }

    record Product(String name, long cents, int[] features) {}

    static final class Catalog {
        final List<Product> products = new ArrayList<>();

        Catalog(int size, Random random) {
            String[] words = {"red", "green", "wool", "coat", "shoe", "light", "long", "summer", "kids", "sport"};
            for (int i = 0; i < size; i++) {
                String name = words[random.below(10)] + " " + words[random.below(10)] + " " + i;
                int[] features = new int[16];
                for (int f = 0; f < features.length; f++) {
                    features[f] = random.below(100);
                }
                products.add(new Product(name, 100 + random.below(9900), features));
            }
        }

        List<Product> search(String word) {
            List<Product> found = new ArrayList<>();
            for (Product product : products) {
                if (matches(product.name(), word)) {
                    found.add(product);
                }
            }
            return found;
        }

        static boolean matches(String text, String word) {
            outer:
            for (int i = 0; i + word.length() <= text.length(); i++) {
                for (int j = 0; j < word.length(); j++) {
                    if (text.charAt(i + j) != word.charAt(j)) {
                        continue outer;
                    }
                }
                return true;
            }
            return false;
        }
    }

    static final class Basket {
        final List<Product> items = new ArrayList<>();

        long total(Discount[] discounts) {
            long sum = 0;
            for (Product item : items) {
                long price = item.cents();
                for (Discount discount : discounts) {
                    price = discount.apply(price);
                }
                sum += price;
            }
            return sum;
        }
    }

    static final class Recommender {
        /** The feature that is switched on half way: compares each found product with the whole catalog. */
        static Product similar(Product to, List<Product> among) {
            Product best = null;
            long bestDistance = Long.MAX_VALUE;
            for (Product other : among) {
                long distance = distance(to.features(), other.features());
                if (other != to && distance < bestDistance) {
                    bestDistance = distance;
                    best = other;
                }
            }
            return best;
        }

        static long distance(int[] a, int[] b) {
            long sum = 0;
            for (int i = 0; i < a.length; i++) {
                int d = a[i] - b[i];
                if (d < 0) {
                    d = -d;
                }
                sum += (long) d * d;
            }
            return sum;
        }
    }

    /** A generator of its own: the same requests in every run and on every JDK. */
    static final class Random {
        private long state = 88172645463325252L;

        int below(int bound) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            return (int) Math.floorMod(state, (long) bound);
        }
    }

    static String page(List<Product> products, long total, Map<String, Integer> visits) {
        StringBuilder html = new StringBuilder();
        for (Product product : products) {
            html.append("<li>").append(escape(product.name())).append(' ').append(product.cents()).append("</li>");
            visits.merge(product.name(), 1, Integer::sum);
        }
        return html.append(total).toString();
    }

    static String escape(String text) {
        StringBuilder out = new StringBuilder(text.length());
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            switch (c) {
                case '<' -> out.append("&lt;");
                case '&' -> out.append("&amp;");
                default -> out.append(c);
            }
        }
        return out.toString();
    }

    private final Random random = new Random();
    private final Catalog catalog = new Catalog(120, random);
    private final Discount[] discounts = {new Percent(10), new Voucher(50), new Percent(3)};
    private final Map<String, Integer> visits = new HashMap<>();
    private static final String[] QUERIES = {"red", "coat", "light", "sport", "wool"};

    long serve(boolean recommend) {
        List<Product> found = catalog.search(QUERIES[random.below(QUERIES.length)]);
        Basket basket = new Basket();
        basket.items.addAll(found);
        if (recommend) {
            for (Product product : found.subList(0, Math.min(12, found.size()))) {
                basket.items.add(Recommender.similar(product, catalog.products));
            }
        }
        long total = basket.total(discounts);
        return total + page(found.subList(0, Math.min(8, found.size())), total, visits).length();
    }

    public static void main(String[] args) throws InterruptedException {
        if (args.length < 1) {
            System.err.println("usage: java Shop SECONDS [REQUESTS_PER_SECOND]");
            System.exit(2);
        }
        double seconds = Double.parseDouble(args[0]);
        double rate = args.length > 1 ? Double.parseDouble(args[1]) : 100;
        Shop shop = new Shop();
        long start = System.nanoTime();
        long checksum = 0;
        int served = 0;
        double now = 0;
        while (now < seconds) {
            while (served < now * rate && now < seconds) { // slower than the rate: it ends in time all the same
                checksum += shop.serve(now > seconds / 2);
                served++;
                now = (System.nanoTime() - start) / 1e9;
            }
            Thread.sleep(5);
            now = (System.nanoTime() - start) / 1e9;
        }
        System.out.println("served " + served + " requests, checksum " + checksum);
    }
}
