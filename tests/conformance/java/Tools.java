import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Kafka's tools one after another in one process, as its scripts run each in a process of its own: a line of standard
 * input is a class and its arguments, with tabs between; the answer is a line with the exit code and the number of bytes that follow, which
 * are what the tool printed.
 */
public class Tools {
    static class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    /** The code of a tool's first exit: TopicCommand catches what stands for an exit here, and exits once more. */
    static Integer exited;

    static void end(int code) {
        if (exited == null) exited = code;
        throw new Ended(exited);
    }

    static int run(String[] words) throws Exception {
        exited = null;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            return 0;
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof Ended ended) return ended.code;
            failure.getCause().printStackTrace();
            return 1;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(stream); // once: Scala's Console keeps the stream that it finds first
        System.setErr(stream);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            printed.reset();
            int code = run(line.split("\t"));
            stream.flush();
            answers.println(code + " " + printed.size());
            answers.write(printed.toByteArray());
            answers.flush();
        }
    }
}
