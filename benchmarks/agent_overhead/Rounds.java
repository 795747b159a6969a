import com.sun.management.OperatingSystemMXBean;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.lang.management.ManagementFactory;
import javax.xml.transform.TransformerFactory;
import javax.xml.transform.sax.SAXResult;
import javax.xml.transform.stream.StreamSource;
import org.apache.fop.apps.FopFactory;

/**
 * The same work again and again in one JVM: the last lines of stderr have the CPU time (ns) of the process after each
 * round, and when the round ended (ms since the epoch).
 */
public final class Rounds {
    interface Work {
        void run() throws Exception;
    }

    /** fop|h2 FILE ROUNDS */
    public static void main(String[] arguments) throws Exception {
        String file = arguments[1];
        Work work = arguments[0].equals("fop") ? fop(new File(file)) : () -> org.h2.tools.RunScript.main(
            "-url", "jdbc:h2:mem:benchmark", "-script", file);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long[] spent = new long[Integer.parseInt(arguments[2])];
        long[] ended = new long[spent.length];
        for (int i = 0; i < spent.length; i++) {
            work.run();
            spent[i] = system.getProcessCpuTime();
            ended[i] = System.currentTimeMillis();
        }
        say("rounds", spent);
        say("ended", ended);
    }

    private static void say(String what, long[] numbers) {
        StringBuilder line = new StringBuilder(what);
        for (long number : numbers) {
            line.append(' ').append(number);
        }
        System.err.println(line);
    }

    private static Work fop(File document) {
        FopFactory factory = FopFactory.newInstance(new File(".").toURI());
        return () -> {
            var result = new SAXResult(factory.newFop("application/pdf", new ByteArrayOutputStream()).getDefaultHandler());
            TransformerFactory.newInstance().newTransformer().transform(new StreamSource(document), result);
        };
    }
}
