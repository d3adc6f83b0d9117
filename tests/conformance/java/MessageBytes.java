import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** The Java side of tests/support/java_codec.py: for each line with a message as JSON, a line with its bytes in hexadecimal. */
public class MessageBytes {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode task = json.readTree(line);
            short version = (short) task.get("version").asInt();
            System.out.println(HexFormat.of().formatHex(bytes(read(task, version), version)));
        }
    }

    static ApiMessage read(JsonNode task, short version) throws Exception {
        String converter = "org.apache.kafka.common.message." + task.get("message").asText() + "DataJsonConverter";
        Method read = Class.forName(converter).getMethod("read", JsonNode.class, short.class);
        return (ApiMessage) read.invoke(null, task.get("value"), version);
    }

    static byte[] bytes(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) throw new IllegalStateException("size and write differ");
        return buffer.array();
    }
}
