// SPDX-License-Identifier: Apache-2.0
import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import continuo.v1.Delta;
import continuo.v1.GenerateRequest;
import continuo.v1.GenerateResponse;
import continuo.v1.InferenceServiceGrpc;
import continuo.v1.InferenceServiceGrpc.InferenceServiceBlockingStub;
import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Streams an answer with nothing but stock gRPC, and goes on where it was after a lost connection.
 *
 * <pre>
 *   mvn package
 *   java -jar target/generate.jar --server=localhost:50050 "Once upon a time"
 * </pre>
 *
 * Exit code: 0, 1 after an error, 2 for bad usage, 130 after Ctrl-C.
 */
final class Generate {
  private static final long FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 3_000, RECONNECT_FOR_S = 60;

  /**
   * Hands out every response exactly once and in order, over as many connections as it takes, each
   * to the next of the servers. A server that gets what was received as continuation goes on
   * exactly after it. Throws after an error that another try cannot mend.
   */
  static void generate(List<InferenceServiceBlockingStub> servers, GenerateRequest.Builder request,
      Deadline deadline, Consumer<GenerateResponse> onResponse, Consumer<Status> onLost)
      throws InterruptedException, InvalidProtocolBufferException {
    long pauseMs = FIRST_PAUSE_MS, retryMs = 0;
    Deadline giveUp = null;
    for (int attempt = 0; ; ++attempt) {
      // gRPC sends the deadline along, so the server does not work beyond it either.
      var server = servers.get(attempt % servers.size()).withDeadline(deadline);
      try {
        var responses = server.generate(request.build());
        while (responses.hasNext()) {
          GenerateResponse response = responses.next();
          request.getContinuationBuilder().getReceivedBuilder().mergeFrom(response);
          giveUp = null;
          pauseMs = FIRST_PAUSE_MS;
          onResponse.accept(response);
        }
        return;
      } catch (StatusRuntimeException error) {
        // With the summary the answer is complete, whatever became of the connection.
        if (request.getContinuation().getReceived().hasSummary()) return;
        boolean goOn = request.hasContinuation() || attempt + 1 < servers.size();
        boolean lost = error.getStatus().getCode() == Status.Code.UNAVAILABLE && goOn;
        // A full server accepts a continuation a little later.
        boolean full = error.getStatus().getCode() == Status.Code.RESOURCE_EXHAUSTED
            && request.hasContinuation();
        // The time counts from the loss, which may be noticed late.
        if (giveUp == null) giveUp = Deadline.after(RECONNECT_FOR_S, TimeUnit.SECONDS);
        if (!(lost || full) || giveUp.isExpired()) throw error;
        onLost.accept(error.getStatus());
        retryMs = retryDelay(error).map(Duration::toMillis).orElse(0L);
      }
      Thread.sleep(Math.max(pauseMs, retryMs));
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }

  /** How long the server asks to wait. */
  static Optional<Duration> retryDelay(StatusRuntimeException error)
      throws InvalidProtocolBufferException {
    for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (!detail.is(RetryInfo.class)) continue;
      var delay = detail.unpack(RetryInfo.class).getRetryDelay();
      return Optional.of(Duration.ofSeconds(delay.getSeconds(), delay.getNanos()));
    }
    return Optional.empty();
  }

  /** One line: code, reason and message; and when to try again, where the server says so. */
  static String describe(StatusRuntimeException error) throws InvalidProtocolBufferException {
    String text = error.getStatus().getCode().name();
    for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        text += " (" + detail.unpack(ErrorInfo.class).getReason() + ")";
      }
    }
    String hint = retryDelay(error).map(delay -> "; try again in " + delay).orElse("");
    return text + ": " + error.getStatus().getDescription() + hint;
  }

  public static void main(String[] arguments) throws Exception {
    var flags = new HashMap<>(Map.of("server", "localhost:50050", "timeout", "600"));
    for (String argument : arguments) {
      boolean isFlag = argument.startsWith("--");
      String[] pair = isFlag ? argument.substring(2).split("=", 2) : new String[] {"", argument};
      flags.put(pair[0], pair.length == 2 ? pair[1] : "true");
    }
    if (!flags.containsKey("")) {
      System.err.println("usage: generate [--flag=value] PROMPT");
      System.exit(2);
    }
    var request = GenerateRequest.newBuilder().setText(flags.get(""));
    // Unset fields take the model's defaults.
    var sampling = request.getSamplingBuilder();
    var stopping = request.getStoppingBuilder();
    Function<String, Optional<String>> flag = name -> Optional.ofNullable(flags.get(name));
    flag.apply("model").ifPresent(request::setModel);
    flag.apply("temperature").map(Float::valueOf).ifPresent(sampling::setTemperature);
    flag.apply("seed").map(Long::parseUnsignedLong).ifPresent(sampling::setSeed);
    flag.apply("max_tokens").map(Integer::valueOf).ifPresent(stopping::setMaxTokens);
    stopping.setIgnoreEos(flags.containsKey("ignore_eos"));

    // Pings find a connection that broke without a FIN or RST. Several servers are separated by commas.
    List<ManagedChannel> channels = Arrays.stream(flags.get("server").split(","))
        .map(address -> Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
            .keepAliveTime(10, TimeUnit.SECONDS).keepAliveTimeout(5, TimeUnit.SECONDS).build())
        .toList();
    var servers = channels.stream().map(InferenceServiceGrpc::newBlockingStub).toList();
    Context.CancellableContext context = Context.current().withCancellation();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> { // Ctrl-C cancels the call, and the server stops, too.
      context.cancel(null);
      channels.forEach(ManagedChannel::shutdownNow);
    }));

    var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, UTF_8);
    var numTokens = new AtomicLong();
    double seconds = Double.parseDouble(flags.get("timeout"));
    var deadline = Deadline.after((long) (1000 * seconds), TimeUnit.MILLISECONDS);
    try {
      context.call(() -> {
        generate(servers, request, deadline, response -> {
          for (Delta delta : response.getDeltasList()) {
            numTokens.addAndGet(delta.getTokenIdsCount());
            out.print(delta.getText());
          }
        }, lost -> System.err.println(
            "[lost after " + numTokens + " tokens, " + lost.getCode() + "; going on]"));
        return null;
      });
      out.println();
    } catch (StatusRuntimeException error) {
      if (!context.isCancelled()) {
        System.err.println("generate: " + describe(error));
        System.exit(1);
      }
    }
  }
}
