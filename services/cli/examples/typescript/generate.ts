// SPDX-License-Identifier: Apache-2.0
//
// Streams an answer with stock gRPC alone, and continues it after a lost connection.
//
//   npm ci && npm run build
//   node dist/generate.js --server=localhost:50050 "Once upon a time"
//
// Exit code: 0, 1 after an error, 2 for bad usage, 130 after Ctrl-C.
import * as grpc from '@grpc/grpc-js';
import * as protoLoader from '@grpc/proto-loader';
import { resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import * as protobuf from 'protobufjs';
import type { InferenceServiceClient } from './gen/continuo/v1/InferenceService';
import type { GenerateRequest } from './gen/continuo/v1/GenerateRequest';
import type { GenerateResponse__Output as GenerateResponse } from './gen/continuo/v1/GenerateResponse';
import type { ProtoGrpcType } from './gen/inference';

const PROTO = resolve(__dirname, '../../../../../proto');
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS, RECONNECT_FOR_MS] = [100, 3_000, 60_000];

/** What protobuf's own merge does: later values win, repeated fields are joined. */
function merge(received: GenerateResponse | undefined, next: GenerateResponse): GenerateResponse {
  return {
    ...received,
    ...next,
    accepted: next.accepted ? { ...received?.accepted, ...next.accepted } : received?.accepted,
    deltas: [...(received?.deltas ?? []), ...next.deltas],
    prompt_logprobs: [...(received?.prompt_logprobs ?? []), ...next.prompt_logprobs],
  };
}

/**
 * Yields every response exactly once and in order, over as many connections as it takes, each to
 * the next of the servers. A server that gets what was received as continuation goes on exactly
 * after it. Throws a grpc.ServiceError after an error that another try cannot mend.
 */
async function* generate(
  servers: InferenceServiceClient[], request: GenerateRequest, deadline: Date, signal: AbortSignal,
  onLost: (error: grpc.ServiceError) => void,
): AsyncGenerator<GenerateResponse> {
  let received: GenerateResponse | undefined;
  let lostSince: number | undefined;
  let pauseMs = FIRST_PAUSE_MS;
  for (let attempt = 0; ; ++attempt) {
    const continuation = received && { received };
    // gRPC sends the deadline along, so the server does not work beyond it either.
    const call = servers[attempt % servers.length].Generate({ ...request, continuation }, { deadline });
    const cancel = () => call.cancel();
    signal.addEventListener('abort', cancel);
    try {
      for await (const response of call) {
        received = merge(received, response);
        lostSince = undefined;
        pauseMs = FIRST_PAUSE_MS;
        yield response;
      }
      return;
    } catch (thrown) {
      const error = thrown as grpc.ServiceError;
      if (received?.summary) return; // The answer is complete, whatever became of the connection.
      const goOn = received !== undefined || attempt + 1 < servers.length;
      const lost = error.code === grpc.status.UNAVAILABLE && goOn;
      // A full server accepts a continuation a little later.
      const full = error.code === grpc.status.RESOURCE_EXHAUSTED && received !== undefined;
      lostSince ??= Date.now(); // The loss may be noticed late.
      if (!(lost || full) || Date.now() - lostSince > RECONNECT_FOR_MS) throw error;
      onLost(error);
      await pause(Math.max(pauseMs, detailsOf(error).retryDelayMs ?? 0), undefined, { signal });
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    } finally {
      signal.removeEventListener('abort', cancel);
      call.cancel(); // If the caller stops early, the server stops, too.
    }
  }
}

/** Why, and when to try again, where the server says so. */
function detailsOf(error: grpc.ServiceError): { reason?: string; retryDelayMs?: number } {
  const result: { reason?: string; retryDelayMs?: number } = {};
  const details = error.metadata?.get('grpc-status-details-bin')[0] as Buffer | undefined;
  const types = new protobuf.Root();
  types.resolvePath = (_, path) => resolve(PROTO, path);
  types.loadSync(['google/rpc/status.proto', 'google/rpc/error_details.proto']);
  const decode = (type: string, bytes: Uint8Array): any => types.lookupType(type).decode(bytes);
  for (const { type_url, value } of details ? decode('google.rpc.Status', details).details : []) {
    if (type_url.endsWith('ErrorInfo')) {
      result.reason = decode('google.rpc.ErrorInfo', value).reason;
    } else if (type_url.endsWith('RetryInfo')) {
      const delay = decode('google.rpc.RetryInfo', value).retryDelay;
      result.retryDelayMs = 1000 * Number(delay.seconds) + delay.nanos / 1e6;
    }
  }
  return result;
}

/** One line: code, reason and message; and when to try again. */
function describe(error: grpc.ServiceError): string {
  const { reason, retryDelayMs } = detailsOf(error);
  const hint = retryDelayMs === undefined ? '' : `; try again in ${retryDelayMs} ms`;
  return `${grpc.status[error.code]}${reason ? ` (${reason})` : ''}: ${error.details}${hint}`;
}

async function main(): Promise<number> {
  const text = { type: 'string' } as const;
  const { values: flags, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      server: { ...text, default: 'localhost:50050' }, // Several are separated by commas.
      timeout: { ...text, default: '600' }, // In seconds.
      model: text, max_tokens: text, temperature: text, seed: text, ignore_eos: { type: 'boolean' },
    },
  });
  if (positionals.length !== 1) throw new TypeError('usage: generate [flags] PROMPT');
  const number = (flag?: string) => (flag === undefined ? undefined : Number(flag));
  const request: GenerateRequest = {
    model: flags.model,
    text: positionals[0],
    // Unset fields take the model's defaults.
    sampling: { temperature: number(flags.temperature), seed: flags.seed },
    stopping: { max_tokens: number(flags.max_tokens), ignore_eos: flags.ignore_eos },
  };

  const definition = protoLoader.loadSync('continuo/v1/inference.proto', {
    includeDirs: [PROTO], keepCase: true, longs: String, enums: String, arrays: true, oneofs: true,
  });
  const { continuo } = grpc.loadPackageDefinition(definition) as unknown as ProtoGrpcType;
  // Pings find a connection that broke without a FIN or RST.
  const options = { 'grpc.keepalive_time_ms': 10_000, 'grpc.keepalive_timeout_ms': 5_000 };
  const servers = flags.server!.split(',').map((address) =>
    new continuo.v1.InferenceService(address, grpc.credentials.createInsecure(), options));
  const interrupt = new AbortController();
  process.once('SIGINT', () => interrupt.abort());

  let numTokens = 0;
  const onLost = (error: grpc.ServiceError) => console.error(
    `[lost after ${numTokens} tokens, ${grpc.status[error.code]}; going on]`);
  const deadline = new Date(Date.now() + 1000 * Number(flags.timeout));
  try {
    for await (const { deltas } of generate(servers, request, deadline, interrupt.signal, onLost)) {
      for (const delta of deltas) {
        numTokens += delta.token_ids.length;
        process.stdout.write(delta.text ?? '');
      }
    }
    process.stdout.write('\n');
  } catch (error) {
    if (interrupt.signal.aborted) return 130;
    console.error(`generate: ${describe(error as grpc.ServiceError)}`);
    return 1;
  } finally {
    servers.forEach((server) => server.close());
  }
  return 0;
}

main().catch((error) => { console.error(error.message); return 2; })
  .then((code) => { process.exitCode = code; });
