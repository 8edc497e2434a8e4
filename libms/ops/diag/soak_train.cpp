// soak.train: a small model is trained again and again by ms-train itself, and ends with the same bits.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/own_tool.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "diag/share.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr const char* kPath = "/usr/local/bin:/usr/bin:/bin";
constexpr double kTrain_s = 240;  // of one training, which takes a second on an idle core

// Two layers on a text of one sentence: a model that anything learns.
constexpr std::string_view kMiniTraining = R"([model]
family = "gpt"
layers = 2
hidden = 64
heads = 4
vocab = 257
seq = 64
[train]
steps = 20
global_batch = 8
microbatch = 8
dtype = "fp32"
[optim]
lr = 1e-2
warmup_steps = 2
[data]
train = ["text"]
[run]
dir = "run"
)";

class MiniDirectory {
 public:
  MiniDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "ms-diag-train-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error("diag.train", Blame::storage, fmt::format("cannot make {}: {}", name, errno_text(errno)));
    }
    path_ = name;
  }
  ~MiniDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MiniDirectory(const MiniDirectory&) = delete;
  MiniDirectory& operator=(const MiniDirectory&) = delete;
  std::string operator/(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_;
};

bool is_installed(const std::string& program) {
  if (program.find('/') != std::string::npos) return true;  // beside ms-diag
  return std::ranges::any_of(split(kPath, ':'), [&](const std::string& directory) {
    return ::access(fmt::format("{}/{}", directory, program).c_str(), X_OK) == 0;
  });
}

struct Ran {
  std::string why = {};  // it failed; empty: it did not
  bool in_time = true;
};

// Its environment is its own: a launch that this process is part of, and switches for CUDA, must not change what is
// trained.
Ran run_tool(const MiniDirectory& directory, std::vector<std::string> words, double left_s) {
  words.insert(words.begin(), {"/usr/bin/env", "--chdir=" + directory / ""});
  const SubprocessResult result = run_subprocess(
      words,
      {.deadline_s = std::min(kTrain_s, left_s), .environment = {{fmt::format("PATH={}", kPath), "MS_LOG=warn"}}});
  if (result.ok()) return {};
  if (result.timed_out) return {.why = fmt::format("{} was not done in time", words[2]), .in_time = false};
  const std::string said = plain_text(result.err, 160);
  return {.why = fmt::format("{}: {}{}", words[2], result.describe(), said.empty() ? "" : ", " + said)};
}

// The losses of the steps, as they are in the file, to the last bit.
std::vector<double> losses_of(const std::string& metrics) {
  std::vector<double> losses;
  for (const std::string& line : split(read_file(metrics), '\n')) {
    const std::optional<Json> json = Json::try_parse(line);
    const Json* const loss = json ? json->find("loss") : nullptr;
    if (loss != nullptr && loss->is_number()) losses.push_back(loss->get<double>());
  }
  return losses;
}

health::Result train(health::Evidence& evidence) {
  const Share share = this_share();
  if (share.index > 0) return health::skipped("the first process of this node does it");
  const std::string ms_data = own_tool("ms-data"), ms_train = own_tool("ms-train");
  for (const std::string& program : {ms_data, ms_train}) {
    if (is_installed(program)) continue;
    return health::skipped(fmt::format("there is no {} beside ms-diag or in {}: install it there", program, kPath));
  }
  const MiniDirectory directory;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "The quick brown fox jumps over the lazy dog.\n";
  write_file_atomic(directory / "text.txt", text);
  write_file_atomic(directory / "mini.toml", kMiniTraining);
  const Ran encoded = run_tool(directory, {ms_data, "encode", "--output", "text", "text.txt"}, evidence.left_s());
  if (!encoded.in_time) return health::not_measured(encoded.why);
  if (!encoded.why.empty()) return health::skipped(encoded.why);
  std::vector<double> first;
  int trainings = 0, different = 0;
  double longest_s = 0;
  const double started_s = monotonic_s();
  do {
    const double begun_s = monotonic_s();
    const Ran ran = run_tool(directory, {ms_train, "run", "mini.toml", "--ranks", "1", "--fresh"}, evidence.left_s());
    longest_s = std::max(longest_s, monotonic_s() - begun_s);
    if (!ran.in_time && trainings < 2) return health::not_measured(ran.why);
    if (!ran.in_time) break;
    if (!ran.why.empty()) return health::judged({about("training", Severity::warning, ran.why)});
    const std::vector<double> losses = losses_of(directory / "run/metrics.jsonl");
    if (first.empty()) first = losses;
    different += losses == first ? 0 : 1;
    ++trainings;
  } while (trainings < 2 || (monotonic_s() - started_s < evidence.asked().soak_s && 2 * longest_s < evidence.left_s()));
  if (first.size() < 2) return health::broken("ms-train wrote no losses");
  const std::string how =
      fmt::format("{} of {} steps, loss {:.4g} to {:.4g}", plural(static_cast<std::size_t>(trainings), "training"),
                  first.size(), first.front(), first.back());
  std::vector<Finding> findings;
  if (different > 0) {
    findings.push_back(about("training", Severity::critical,
                             fmt::format("{} of {} trainings gave other losses than the first", different, trainings),
                             different, 0));
  }
  if (!(first.back() < first.front())) {
    findings.push_back(about("training", Severity::warning, fmt::format("the loss does not fall, {}", how),
                             first.back(), first.front()));
  }
  health::Result result = health::judged(std::move(findings));
  result.note = how;
  return result;
}

}  // namespace

extern constinit const health::Check kSoakTrain = {
    .code = "soak.train",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "a small training run that fails, does not converge, or gives different losses",
    .needs = "ms-data and ms-train, beside ms-diag or in the path",
    .deadline_s = 600,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .soaks = true,
    .on_hang = std::nullopt,
    .explain =
        "Encodes a short text and trains a two-layer model on it with ms-train on the CPU for twenty steps, at least "
        "twice and for the time given with --soak. The losses must decrease, and must be identical to the last bit in "
        "every run. The check uses what a job uses: files, memory, threads and the installed libraries.\n\n"
        "Different losses are critical. A run that fails or does not converge is a warning.",
    .remedy = "Run soak.cpu and soak.memory; if they pass, suspect the software installed on this node.",
    .run = train};

}  // namespace ms::diag
