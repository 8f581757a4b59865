// Keeps the configuration of a namespace in memory and up to date, and the last good copy in a file.
//
// usage: java Config.java NODE,NODE,… NAMESPACE FILE
//
// A program reads `now`, the documents (JSON) by container. It starts with the copy in FILE if no node answers.
// Prints `copy` or `current` with the documents, and again whenever they change. The standard library cannot parse
// JSON: a program that has a parser uses it in place of `member`.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public class Config {
    static final int ANSWER_MS = 60_000;

    interface Use {
        void event(String name, String data) throws IOException;
    }

    final Path path;
    volatile Map<String, String> now = new TreeMap<>();
    private Map<String, String> known = new TreeMap<>();
    private boolean isCurrent;

    Config(Path path) throws IOException {
        this.path = path;
        if (Files.exists(path)) {
            Map<String, String> copied = new TreeMap<>();
            for (String line : Files.readAllLines(path)) {
                String[] parts = line.split("\t", 2);
                copied.put(parts[0], parts[1]);
            }
            now = copied;
            print("copy");
        }
    }

    // What was said last to be wrong with a node.
    static final Map<String, String> problems = new HashMap<>();

    // Says what is wrong with a node, once until that changes.
    static void report(String node, String problem) {
        if (problem != null && !problem.equals(problems.get(node))) System.err.println(node + ": " + problem);
        problems.put(node, problem);
    }

    // Server-sent events of any node, behind the last event of another one whenever the connection ends.
    static void events(List<String> nodes, String path, Use use) throws InterruptedException {
        for (String last = "";; Collections.rotate(nodes, -1), Thread.sleep(200)) {
            try {
                var connection = (HttpURLConnection) URI.create("http://" + nodes.get(0) + path).toURL().openConnection();
                connection.setConnectTimeout(2_000);
                // A node sends an event every ten seconds at least.
                connection.setReadTimeout(ANSWER_MS);
                if (!last.isEmpty()) connection.setRequestProperty("Last-Event-ID", last);
                if (connection.getResponseCode() != 200) {
                    var body = connection.getErrorStream();
                    String text = body == null ? "" : new String(body.readNBytes(500), StandardCharsets.UTF_8);
                    throw new IOException(connection.getResponseCode() + " " + text);
                }
                report(nodes.get(0), null);
                var lines = new BufferedReader(new InputStreamReader(connection.getInputStream(), StandardCharsets.UTF_8));
                var event = new HashMap<String, String>();
                for (String line; (line = lines.readLine()) != null;) {
                    if (!line.isEmpty()) {
                        String[] parts = line.split(": ", 2);
                        event.put(parts[0], parts.length > 1 ? parts[1] : "");
                        continue;
                    }
                    if (event.containsKey("event")) use.event(event.get("event"), event.get("data"));
                    last = event.getOrDefault("id", last);
                    event.clear();
                }
            } catch (IOException error) {
                report(nodes.get(0), error.toString());
            }
        }
    }

    void take(String name, String data) throws IOException {
        String key = member(data, "key");
        switch (name) {
            // The state follows. What was known until now serves until it is complete.
            case "gap" -> { known.clear(); isCurrent = false; }
            case "change" -> known.put(key, data.substring(data.indexOf(",\"data\":") + 8, data.length() - 1));
            case "deleted" -> { if (key == null) known.clear(); else known.remove(key); }
            case "current" -> isCurrent = true;
            default -> { return; }
        }
        if (isCurrent) replace();
    }

    // The text of a member in front of the document; null if there is none.
    static String member(String data, String name) {
        int begin = data.indexOf("\"" + name + "\":\""), document = data.indexOf(",\"data\":");
        if (begin < 0 || document >= 0 && begin > document) return null;
        begin += name.length() + 4;
        return data.substring(begin, data.indexOf('"', begin));
    }

    void replace() throws IOException {
        var copied = new TreeMap<>(known);
        var lines = new StringBuilder();
        copied.forEach((key, document) -> lines.append(key).append('\t').append(document).append('\n'));
        Path temporary = Path.of(path + ".new");
        Files.writeString(temporary, lines, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING,
            StandardOpenOption.WRITE, StandardOpenOption.SYNC);
        Files.move(temporary, path, StandardCopyOption.ATOMIC_MOVE);
        now = copied;
        print("current");
    }

    void print(String source) {
        var shown = new ArrayList<String>();
        now.forEach((key, document) -> shown.add("\"" + key + "\":" + document));
        System.out.println(source + " {" + String.join(",", shown) + "}");
    }

    public static void main(String[] arguments) throws Exception {
        String namespace = URLEncoder.encode(arguments[1], StandardCharsets.UTF_8).replace("+", "%20");
        Config config = new Config(Path.of(arguments[2]));
        events(new ArrayList<>(List.of(arguments[0].split(","))), "/api/namespaces/" + namespace + "/watch", config::take);
    }
}
