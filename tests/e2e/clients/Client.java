// SPDX-License-Identifier: Apache-2.0
// openai-java, and java.net.http: chat, a stream, the legacy completions, errors, a stream that is
// left. Prints one JSON object.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.JsonValue;
import com.openai.core.http.StreamResponse;
import com.openai.errors.OpenAIServiceException;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.completions.CompletionCreateParams;
import com.openai.models.completions.CompletionUsage;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

public class Client {
  private static final ObjectMapper json = new ObjectMapper();
  private static final OpenAIClient client =
      OpenAIOkHttpClient.builder().fromEnv().maxRetries(0).build();
  private static JsonNode ask;

  private static ChatCompletionCreateParams.Builder chat(String model, String question) {
    return ChatCompletionCreateParams.builder()
        .model(model)
        .addUserMessage(question)
        .temperature(0)
        .maxTokens(ask.get("max_tokens").asLong());
  }

  private static ChatCompletionCreateParams.Builder chat() {
    return chat(ask.get("model").asText(), ask.get("question").asText());
  }

  private static ChatCompletion create(ChatCompletionCreateParams.Builder params) {
    return client.chat().completions().create(params.build());
  }

  private static String textOf(ChatCompletion answer) {
    return answer.choices().get(0).message().content().orElse("");
  }

  private static List<Long> usageOf(CompletionUsage usage) {
    return List.of(usage.promptTokens(), usage.completionTokens());
  }

  private static String errorOf(Runnable call) {
    try {
      call.run();
    } catch (OpenAIServiceException error) {
      return error.getClass().getSimpleName() + " " + error.code().orElse("") + ": " + error.getMessage();
    }
    throw new IllegalStateException("no error");
  }

  private static HttpResponse<String> send(HttpRequest request) throws Exception {
    return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
  }

  /** The JDK's own client, which asks for HTTP/2 by an upgrade. */
  private static String plain() throws Exception {
    Map<String, Object> body = Map.of(
        "model", ask.get("model").asText(), "temperature", 0, "max_tokens", ask.get("max_tokens").asInt(),
        "messages", List.of(Map.of("role", "user", "content", ask.get("question").asText())));
    HttpResponse<String> answer = send(
        HttpRequest.newBuilder(URI.create(System.getenv("OPENAI_BASE_URL") + "/chat/completions"))
            .header("Content-Type", "application/json")
            .header("Authorization", "Bearer " + System.getenv("OPENAI_API_KEY"))
            .POST(HttpRequest.BodyPublishers.ofString(json.writeValueAsString(body)))
            .build());
    return json.readTree(answer.body()).at("/choices/0/message/content").asText();
  }

  public static void main(String[] arguments) throws Exception {
    ask = json.readTree(System.getenv("ASK"));
    Map<String, Object> result = new TreeMap<>();
    ChatCompletion answer = create(chat());
    result.put("chat", textOf(answer));
    result.put("usage", usageOf(answer.usage().orElseThrow()));
    if (!plain().equals(textOf(answer))) throw new IllegalStateException("java.net.http: " + plain());

    StringBuilder text = new StringBuilder();
    AtomicReference<CompletionUsage> usage = new AtomicReference<>();
    ChatCompletionCreateParams streamed =
        chat().streamOptions(ChatCompletionStreamOptions.builder().includeUsage(true).build()).build();
    try (StreamResponse<ChatCompletionChunk> stream = client.chat().completions().createStreaming(streamed)) {
      stream.stream().forEach(chunk -> {
        chunk.choices().forEach(choice -> choice.delta().content().ifPresent(text::append));
        chunk.usage().ifPresent(usage::set);
      });
    }
    result.put("streamed", text.toString());
    result.put("streamed_usage", usageOf(usage.get()));

    ChatCompletionCreateParams endless =
        chat().maxTokens(900).putAdditionalBodyProperty("ignore_eos", JsonValue.from(true)).build();
    try (StreamResponse<ChatCompletionChunk> left = client.chat().completions().createStreaming(endless)) {
      left.stream().findFirst().orElseThrow();
    }

    result.put("stopped", textOf(create(chat().stop(ask.get("stop").asText()))));
    result.put("completion", client.completions().create(
        CompletionCreateParams.builder()
            .model(ask.get("model").asText())
            .prompt(ask.get("prompt").asText())
            .temperature(0)
            .maxTokens(ask.get("max_tokens").asLong())
            .build()).choices().get(0).text());
    String longQuestion = ask.get("long_question").asText();
    result.put("long", textOf(create(chat(ask.get("long_model").asText(), longQuestion))));
    result.put("models", client.models().list().data().stream()
        .map(model -> model.id()).sorted().collect(Collectors.toList()));
    Map<String, String> errors = new TreeMap<>();
    errors.put("too_long", errorOf(() -> create(chat(ask.get("model").asText(), longQuestion))));
    errors.put("model", errorOf(() -> create(chat("another", "a"))));
    OpenAIClient stranger = OpenAIOkHttpClient.builder().fromEnv().apiKey("wrong").maxRetries(0).build();
    errors.put("key", errorOf(() -> stranger.models().list()));
    result.put("errors", errors);
    System.out.println(json.writeValueAsString(result));
    System.exit(0);  // the client's threads would keep the process for a minute
  }
}
