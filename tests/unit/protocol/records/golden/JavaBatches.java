import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

/**
 * Record batches by Kafka's own classes. Run with the jars of kafka-clients 4.3.0 and its codecs on the class path:
 *
 *   java -cp 'JARS/*' JavaBatches.java write > java-4.3.0.txt      the golden batches, one "name hex" a line
 *   java -cp 'JARS/*' JavaBatches.java read                        for each batch in hex on stdin a line with what is in it
 */
public class JavaBatches {
    static final Header[] HEADERS = {new RecordHeader("h", "x".getBytes()), new RecordHeader("ü", null)};

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            print("none", records(Compression.NONE, TimestampType.CREATE_TIME, -1, false));
            print("log-append-time", records(Compression.NONE, TimestampType.LOG_APPEND_TIME, 1700000009999L, false));
            print("gzip", records(Compression.gzip().build(), TimestampType.CREATE_TIME, -1, true));
            print("snappy", records(Compression.snappy().build(), TimestampType.CREATE_TIME, -1, true));
            print("lz4", records(Compression.lz4().build(), TimestampType.CREATE_TIME, -1, true));
            print("zstd", records(Compression.zstd().build(), TimestampType.CREATE_TIME, -1, true));
            print("commit", marker(ControlRecordType.COMMIT));
            print("abort", marker(ControlRecordType.ABORT));
        } else {
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = input.readLine(); line != null; line = input.readLine()) read(HexFormat.of().parseHex(line));
        }
    }

    static MemoryRecords records(Compression compression, TimestampType type, long appendTime, boolean big) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 18), (byte) 2, compression, type, 0L, appendTime,
            4000L, (short) 3, 70, true, -1);
        builder.append(1700000000000L, "key".getBytes(), "value".getBytes(), new Header[0]);
        builder.append(1700000000005L, null, new byte[0], HEADERS);
        builder.append(1699999999990L, new byte[0], null, new Header[0]);
        if (big) builder.append(1700000000300L, null, "moldau ".repeat(12000).getBytes(), new Header[0]);
        return builder.build();
    }

    static MemoryRecords marker(ControlRecordType type) {
        return MemoryRecords.withEndTransactionMarker(500L, 1700000000000L, 6, 4000L, (short) 3, new EndTransactionMarker(type, 12));
    }

    static void print(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void read(byte[] bytes) {
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            StringBuilder line = new StringBuilder(batch.compressionType().name);
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                line.append(' ').append(record.offset()).append('/').append(record.timestamp()).append('/');
                line.append(hash(record.hasKey() ? record.key() : null)).append('/').append(hash(record.hasValue() ? record.value() : null));
                for (Header header : record.headers())
                    line.append('/').append(header.key()).append('=').append(header.value() == null ? "null" : Arrays.hashCode(header.value()));
            }
            System.out.println(line);
        }
    }

    static String hash(ByteBuffer data) {
        if (data == null) return "null";
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return bytes.length + ":" + Arrays.hashCode(bytes);
    }
}
