# SPDX-License-Identifier: Apache-2.0
"""The folders of the sources, and the arrows between them: what each may include."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Folder -> folders whose headers it may include. A file belongs to the longest folder that it is below.
ALLOWED = {
    "services/base": "",
    "services/base/net": "",
    "kernels": "services/base",
    "kernels/math": "",
    "kernels/host": "services/base kernels kernels/math",
    "kernels/adapters": "services/base kernels",
    "kernels/cpu/isa": "kernels kernels/math kernels/host",
    "kernels/cpu/runtime": "services/base kernels kernels/host kernels/cpu/isa",
    "kernels/cpu/attention": "services/base kernels kernels/math kernels/host kernels/cpu/isa kernels/cpu/runtime",
    "kernels/cpu/matmul": "services/base kernels kernels/math kernels/host kernels/cpu/isa kernels/cpu/runtime",
    "kernels/cpu/ops": "services/base kernels kernels/adapters kernels/math kernels/host kernels/cpu/matmul "
                       "kernels/cpu/runtime",
    "kernels/cpu": "services/base kernels kernels/host kernels/cpu/attention kernels/cpu/isa kernels/cpu/matmul "
                   "kernels/cpu/ops kernels/cpu/runtime",
    "kernels/cuda/runtime": "services/base kernels kernels/math kernels/host",
    "kernels/cuda/formats": "services/base kernels kernels/host kernels/cuda/runtime",
    "kernels/cuda/ops": "services/base kernels kernels/cuda/formats kernels/cuda/runtime",
    "kernels/cuda/matmul": "services/base kernels kernels/cuda/formats kernels/cuda/ops kernels/cuda/runtime",
    "kernels/cuda/experts": "services/base kernels kernels/math kernels/cuda/formats kernels/cuda/matmul "
                            "kernels/cuda/ops kernels/cuda/runtime",
    "kernels/cuda/attention": "services/base kernels kernels/math kernels/cuda/formats kernels/cuda/runtime",
    "kernels/cuda/sampling": "kernels kernels/math kernels/cuda/runtime",
    "kernels/cuda/states": "services/base kernels kernels/math kernels/cuda/runtime",
    "kernels/cuda/collectives": "services/base kernels kernels/cuda/runtime",
    "kernels/cuda/adapters": "services/base kernels/adapters kernels/cuda/runtime",
    "kernels/cuda/faults": "services/base kernels kernels/cuda/runtime",
    "kernels/cuda": "services/base kernels kernels/host kernels/cuda/adapters kernels/cuda/attention "
                    "kernels/cuda/collectives kernels/cuda/experts kernels/cuda/matmul kernels/cuda/ops "
                    "kernels/cuda/runtime kernels/cuda/sampling kernels/cuda/states",
    "kernels/factory": "services/base kernels kernels/host kernels/cpu kernels/cpu/isa kernels/cuda "
                       "kernels/cuda/faults kernels/cuda/runtime",
    "services/protocol": "services/base proto",
    "services/common": "services/base",
    "services/common/grpc": "services/base services/common services/protocol proto",
    "services/common/telemetry": "services/base services/base/net services/common services/protocol proto",
    "services/common/trust": "services/base services/common services/protocol",
    "services/worker/gguf": "services/base kernels kernels/math",
    "services/worker/quantised": "services/base kernels kernels/math",
    "services/worker/text": "services/base services/worker/gguf services/worker/text/response "
                            "services/worker/text/tokenizer_files",
    "services/worker/text/calls": "services/base services/worker/text services/worker/text/grammar "
                                  "services/worker/text/response",
    "services/worker/text/grammar": "services/base services/worker/text",
    "services/worker/text/response": "services/base",
    # One crate, which includes no header.
    "services/worker/text/bundle": "services/base services/worker/gguf services/worker/text/tokenizer_files",
    "services/worker/text/tokenizer_files": "",
    "services/worker/text/rust/src": "",
    "services/worker/text/rust/src/convert": "",
    "services/worker/text/rust/src/grammar": "",
    "services/worker/text/rust/src/jinja": "",
    "services/worker/text/rust/src/python": "",
    "services/worker/model": "kernels",
    "services/worker/model/description": "services/base kernels/math services/worker/gguf services/worker/quantised",
    "services/worker/model/checkpoint": "services/base kernels kernels/math services/worker/gguf "
                                        "services/worker/model/description services/worker/quantised",
    "services/worker/model/adapter": "services/base kernels services/worker/model/checkpoint "
                                     "services/worker/model/description",
    "services/worker/model/network": "services/base kernels kernels/adapters kernels/math services/worker/model/adapter "
                                     "services/worker/model/checkpoint services/worker/model/description",
    "services/worker/model/run": "services/base kernels kernels/math services/worker/model "
                                 "services/worker/model/adapter services/worker/model/checkpoint services/worker/model/description "
                                 "services/worker/model/network",
    "services/worker/model/load": "services/base kernels services/worker/model services/worker/model/adapter "
                                  "services/worker/model/checkpoint "
                                  "services/worker/model/description services/worker/model/network "
                                  "services/worker/model/run",
    "services/worker/model/tools": "services/base kernels/math services/worker/model/checkpoint "
                                   "services/worker/model/description",
    "services/worker/embedding": "services/base kernels/math services/worker/model/checkpoint "
                                 "services/worker/model/description",
    "services/worker/describe": "services/worker/gguf services/worker/model/checkpoint "
                                "services/worker/model/description services/worker/model/load services/worker/text "
                                "services/worker/text/tokenizer_files",
    "services/worker/hub": "services/base services/worker/text/tokenizer_files",
    "services/worker/engine/types": "services/worker/model",
    "services/worker/engine/kv": "services/base services/worker/engine/types",
    "services/worker/engine/requests": "services/base services/worker/engine/types services/worker/engine/kv",
    "services/worker/engine/estimate": "services/base services/worker/model services/worker/engine/types "
                                       "services/worker/engine/kv",
    "services/worker/engine/draft": "services/base services/worker/model services/worker/engine/types "
                                    "services/worker/engine/kv services/worker/engine/requests "
                                    "services/worker/engine/estimate",
    "services/worker/engine/schedule": "services/base services/worker/model services/worker/engine/types "
                                       "services/worker/engine/kv services/worker/engine/requests "
                                       "services/worker/engine/estimate services/worker/engine/draft",
    "services/worker/engine": "services/base services/worker/model services/worker/engine/types "
                              "services/worker/engine/requests services/worker/engine/estimate "
                              "services/worker/engine/draft services/worker/engine/schedule",
    "services/worker/profile": "services/base services/worker/model services/worker/engine/types "
                               "services/worker/engine/kv services/worker/engine/estimate",
    "services/worker/server/constraint": "services/base services/protocol services/worker/engine/types services/worker/text "
                                         "services/worker/text/grammar services/worker/text/response",
    "services/worker/server/pairs": "services/base services/protocol services/worker/text",
    "services/worker/server/session": "services/base services/protocol proto services/worker/embedding "
                                      "services/worker/server/pairs "
                                      "services/worker/engine/types "
                                      "services/worker/server/constraint services/worker/text "
                                      "services/worker/text/bundle services/worker/text/calls services/worker/text/grammar "
                                      "services/worker/text/response",
    "services/worker/server/embed": "services/base services/protocol proto services/worker/engine/types "
                                    "services/worker/server/pairs services/worker/text "
                                    "services/worker/server/session",
    "services/worker/server/lifetime": "services/base services/protocol proto services/worker/engine",
    "services/worker/server/runtime": "services/base services/protocol services/worker/server/session "
                                      "services/worker/server/lifetime services/worker/engine proto",
    "services/worker/server/load": "services/base services/protocol proto services/common/grpc services/worker/server/lifetime",
    "services/worker/server/vllm": "services/base services/protocol proto services/worker/engine "
                                   "services/worker/engine/types services/worker/server/session",
    "services/worker/server/vllm_calls": "services/base services/protocol proto services/common/grpc "
                                         "services/worker/server/lifetime services/worker/server/runtime "
                                         "services/worker/server/session services/worker/server/vllm "
                                         "services/worker/text/bundle",
    "services/worker/server/grpc": "services/worker/server/load services/worker/server/vllm services/worker/server/vllm_calls services/base services/common services/common/grpc services/common/telemetry "
                                   "services/common/trust "
                                   "services/protocol services/worker/server/runtime proto services/worker/engine "
                                   "services/worker/engine/types services/worker/server/embed "
                                   "services/worker/server/session services/worker/server/lifetime",
    # main.cc and config.*: composition.
    "services/worker": "services/base services/common services/common/telemetry services/protocol kernels "
                       "services/worker/describe services/worker/embedding services/worker/gguf services/worker/hub "
                       "services/worker/model/adapter services/worker/model/checkpoint "
                       "services/worker/model/description "
                       "services/worker/model/load services/worker/engine "
                       "services/worker/engine/draft services/worker/profile services/worker/text services/worker/text/bundle "
                       "services/worker/text/response "
                       "services/worker/server/pairs services/worker/server/session services/worker/server/lifetime "
                       "services/worker/server/grpc services/worker/server/runtime",
    "services/gateway/kserve/call": "services/base services/protocol proto services/gateway/openai/json",
    "services/gateway/kserve": "services/gateway/kserve/call services/base services/common/grpc services/protocol proto services/gateway/grpc "
                               "services/gateway/relay",
    "services/gateway/identity": "services/base services/protocol",
    "services/gateway/requests": "services/base services/protocol proto",
    "services/gateway/routing": "services/base services/protocol proto",
    "services/gateway/admission": "services/base services/protocol",
    "services/gateway/relay": "services/base services/protocol proto services/gateway/admission "
                              "services/gateway/identity services/gateway/routing",
    "services/gateway/relay/unary": "services/protocol services/gateway/admission services/gateway/relay "
                                    "services/gateway/routing",
    "services/gateway/discovery/kubernetes": "services/base",
    "services/gateway/discovery": "services/base services/common services/gateway/discovery/kubernetes",
    "services/gateway/workers": "services/base services/common services/common/grpc services/common/trust "
                                "services/protocol proto "
                                "services/gateway/discovery services/gateway/relay services/gateway/routing",
    "services/gateway/reports": "services/base services/common services/common/telemetry services/protocol "
                                "services/gateway/admission services/gateway/relay services/gateway/requests "
                                "services/gateway/routing",
    "services/gateway/grpc": "services/base services/common/grpc services/common/telemetry "
                             "services/protocol proto services/gateway/admission services/gateway/identity "
                             "services/gateway/relay services/gateway/relay/unary services/gateway/reports "
                             "services/gateway/requests services/gateway/routing services/gateway/workers",
    "services/gateway/scaler": "services/base services/common/grpc services/common/trust "
                               "services/protocol proto "
                               "services/gateway/admission services/gateway/discovery services/gateway/relay "
                               "services/gateway/routing",
    "services/gateway/adapters": "services/base services/common services/common/grpc services/protocol "
                                 "services/gateway/routing services/gateway/workers",
    "services/gateway/openai/adapters": "services/base services/protocol services/gateway/adapters "
                                        "services/gateway/openai/http services/gateway/openai/json "
                                        "services/gateway/relay",
    "services/gateway/openai/json": "services/base services/protocol proto",
    "services/gateway/openai/answer": "services/base proto services/gateway/kserve/call services/gateway/openai/json",
    "services/gateway/openai/messages": "services/base services/protocol proto services/gateway/openai/answer "
                                        "services/gateway/openai/json",
    "services/gateway/openai/responses": "services/base services/protocol proto services/gateway/openai/answer "
                                         "services/gateway/openai/json",
    "services/gateway/openai/embeddings": "services/base services/protocol proto services/gateway/openai/http "
                                          "services/gateway/openai/json services/gateway/relay",
    "services/gateway/openai/rerank": "services/base services/protocol proto services/gateway/openai/embeddings "
                                      "services/gateway/openai/http services/gateway/openai/json "
                                      "services/gateway/relay",
    "services/gateway/openai/stream": "services/base services/protocol proto services/gateway/identity "
                                      "services/gateway/openai/answer",
    "services/gateway/openai/http": "services/base services/base/net",
    "services/gateway/openai/live": "services/base services/protocol services/gateway/openai/answer "
                                    "services/gateway/openai/stream services/gateway/openai/http services/gateway/openai/json",
    "services/gateway/openai/routes": "",
    "services/gateway/openai/page": "services/base services/gateway/openai/http",
    "services/gateway/openai/steps": "services/base services/protocol proto services/gateway/openai/http "
                                     "services/gateway/openai/json services/gateway/relay services/gateway/routing",
    "services/gateway/openai": "services/base services/protocol proto services/gateway/adapters "
                               "services/gateway/openai/adapters services/gateway/kserve/call services/gateway/openai/json "
                               "services/gateway/openai/answer services/gateway/openai/embeddings "
                               "services/gateway/openai/live "
                               "services/gateway/openai/messages "
                               "services/gateway/openai/page services/gateway/openai/rerank services/gateway/openai/responses services/gateway/openai/routes "
                               "services/gateway/openai/steps services/gateway/openai/stream "
                               "services/gateway/openai/http services/gateway/identity services/gateway/relay "
                               "services/gateway/routing",
    # main.cc, config.* and gateway.*: composition.
    "services/gateway": "services/base services/common services/common/grpc services/common/telemetry "
                        "services/common/trust "
                        "services/protocol services/gateway/adapters services/gateway/admission services/gateway/discovery "
                        "services/gateway/grpc services/gateway/identity services/gateway/kserve services/gateway/openai services/gateway/openai/http "
                        "services/gateway/relay services/gateway/reports services/gateway/requests services/gateway/routing "
                        "services/gateway/scaler services/gateway/workers",
    # The classes that decide in production, on a virtual clock.
    "services/simulate/event": "services/base services/gateway/relay",
    "services/simulate/worker": "services/base services/protocol proto services/gateway/relay "
                                "services/simulate/event services/worker/engine services/worker/engine/estimate "
                                "services/worker/engine/requests services/worker/engine/schedule "
                                "services/worker/engine/types services/worker/model services/worker/profile "
                                "services/worker/server/lifetime",
    "services/simulate/scaling": "services/base services/gateway/scaler services/simulate/event "
                                 "services/simulate/worker",
    "services/simulate": "services/base services/protocol proto services/gateway/admission "
                         "services/gateway/discovery services/gateway/relay "
                         "services/gateway/requests services/gateway/routing services/gateway/scaler services/gateway/workers "
                         "services/simulate/event services/simulate/scaling services/simulate/worker "
                         "services/worker/profile",
    "services/cli/client": "services/base services/common services/common/grpc services/common/trust "
                           "services/protocol proto",
    "services/cli/bench": "services/base services/common services/common/grpc proto services/cli/client",
    "services/cli/chat": "services/base services/common proto services/cli/client",
    "services/cli/fleet": "services/base services/common/grpc services/protocol proto services/cli/client "
                          "services/worker/engine/estimate services/worker/profile",
    "services/cli/simulate": "services/base services/common services/gateway/routing services/simulate "
                             "services/simulate/worker services/worker/profile services/cli/bench services/cli/client",
    "services/cli": "services/common services/cli/client services/cli/bench services/cli/chat services/cli/fleet "
                    "services/cli/simulate",
}
# Folders that know neither gRPC nor protobuf.
KNOWS_NO_GRPC = ("kernels", "services/worker/gguf", "services/worker/hub", "services/worker/quantised", "services/worker/text",
                 "services/worker/model", "services/worker/engine", "services/base")
# Folders that know protobuf, but no gRPC.
KNOWS_MESSAGES_ONLY = ("services/protocol", "services/worker/server/constraint", "services/worker/server/session",
                       "services/worker/server/lifetime",
                       "services/gateway/identity", "services/gateway/requests", "services/gateway/routing",
                       "services/gateway/admission",
                       "services/gateway/relay", "services/gateway/openai", "services/simulate")
# The inside of the engine, which folders that know gRPC do not know, but for what the second table allows.
ENGINE_INSIDE = tuple(f"services/worker/engine/{part}" for part in ("draft", "estimate", "kv", "requests", "schedule"))
KNOWS_GRPC_AND_ENGINE = {"services/cli/fleet": "services/worker/engine/estimate"}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.M)
SOURCES = (".cc", ".h", ".cu", ".cuh", ".rs", ".py")


def repository_files():
    """Paths below the root, of the files that git would commit; without git, of the sources."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [str(p.relative_to(ROOT)) for d in ("kernels", "services", "tests", "docs", "scripts", "deploy",
                                                    "helm", "proto")
                 for p in (ROOT / d).rglob("*")]
        names += [p.name for p in ROOT.iterdir()]
    return sorted(name for name in names if (ROOT / name).is_file())


def folder_of(path):
    """The folder of the table that a file or an included header belongs to; "" where there is none."""
    if path.startswith(("continuo/v1/", "google/rpc/", "inference/", "opentelemetry/", "vllm/", "xds/")):
        return "proto"
    best = ""
    for folder in ALLOWED:
        if path.startswith(folder + "/") and len(folder) > len(best):
            best = folder
    return best
