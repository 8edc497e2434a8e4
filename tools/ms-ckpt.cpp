// ms-ckpt: what checkpoints there are, whether they are sound, what they hold, and the same state in another form.
// Tables, then calls: the thinking is in libms/ckpt, libms/train/reshard.h and libms/hf.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <random>

#include "base/cli.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/version.h"
#include "ckpt/choose.h"
#include "ckpt/report.h"
#include "hf/convert.h"
#include "hf/model_json.h"
#include "train/reshard.h"

namespace {

using namespace ms;        // NOLINT: a main
using namespace ms::ckpt;  // NOLINT

constexpr int kOk = 0, kNot = static_cast<int>(ExitCode::check_failed);

// Bytes so far, from whichever thread has moved some.
class Bar {
 public:
  Bar(std::string label, std::int64_t total_bytes) : progress_(std::move(label), total_bytes, "bytes", clock_) {}
  // What it returns counts from `base_bytes`, and lives no longer than this.
  std::function<void(std::int64_t)> update(std::int64_t base_bytes = 0) {
    return [this, base_bytes](std::int64_t bytes) {
      const std::lock_guard lock(mutex_);
      most_ = std::max(most_, base_bytes + bytes);
      progress_.update(most_);
    };
  }
  void finish() {
    if (most_ > 0) progress_.finish();
  }

 private:
  SystemClock clock_;
  std::mutex mutex_;  // guards the rest
  std::int64_t most_ = 0;
  Progress progress_;
};

int print(const Args& args, const std::string& json, const std::string& text) {
  fmt::print("{}", args.has("json") ? json : text);
  return kOk;
}

int threads_of(const Args& args) { return static_cast<int>(args.get_int("threads", 1, 1024)); }

std::string directory_of(const Args& args) {
  require_directory(args.get("DIR"));
  return args.get("DIR");
}

std::string output_of(const Args& args) {
  if (!args.has("output")) throw user_error("ckpt.output", "--output DIR is missing");
  return args.get("output");
}

void require_word(const Args& args, const std::string& option, std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), args.get(option)) != words.end()) return;
  throw user_error("cli.value",
                   fmt::format("--{} '{}' is not known: {}", option, args.get(option), fmt::join(words, ", ")));
}

std::int64_t size_of_option(const Args& args, const std::string& option) {
  const std::optional<std::int64_t> size_bytes = parse_size_bytes(args.get(option));
  if (!size_bytes || *size_bytes < 1) {
    throw user_error("cli.value", fmt::format("--{} '{}' is not a size, as 2GiB is", option, args.get(option)));
  }
  return *size_bytes;
}

void say_choice(const std::string& path, const Found& found) {
  if (!is_checkpoint(path)) fmt::print(stderr, "{}: the newest complete one is {}\n", path, found.path);
}

Found complete_of(const std::string& path) {
  Found found = choose_complete(path);
  say_choice(path, found);
  return found;
}

train::Loaded config_of(const Found& found, const std::vector<std::string>& assignments) {
  return train::load_text(found.manifest->config, fmt::format("the configuration in {}", found.path), assignments);
}

int list_them(const Args& args) {
  const std::string dir = directory_of(args);
  const std::vector<Found> found = list(dir);
  return print(args, list_json(dir, found), list_text(dir, found, SystemClock().wall_s()));
}

int show(const Args& args) {
  const Found found = choose(args.get("PATH"));
  say_choice(args.get("PATH"), found);
  if (!found.manifest) {
    throw Error("ckpt.manifest", Blame::storage, fmt::format("{} is no checkpoint: {}", found.path, found.problem));
  }
  if (args.has("config")) return print(args, show_json(found), config_text(*found.manifest));
  return print(args, show_json(found), show_text(found, args.has("params")));
}

int verify_them(const Args& args) {
  const std::string path = args.get("PATH");
  const std::vector<Found> chosen = args.has("newest") ? std::vector{choose(path)} : choose_all(path);
  if (args.has("newest")) say_choice(path, chosen.front());
  std::int64_t total_bytes = 0, done_bytes = 0;
  for (const Found& one : chosen) total_bytes += one.manifest ? one.manifest->size_bytes() : 0;
  Bar bar("verify", total_bytes);
  std::vector<Verified> verified;
  bool sound = true;
  for (const Found& one : chosen) {
    verified.push_back(examine(one, threads_of(args), bar.update(done_bytes)));
    done_bytes += verified.back().size_bytes;
    sound = sound && verified.back().problems.empty();
  }
  bar.finish();
  print(args, verify_json(verified), verify_text(verified));
  return sound ? kOk : kNot;
}

int compare(const Args& args) {
  const Parameters a(complete_of(args.get("A")).path), b(complete_of(args.get("B")).path);
  Bar bar("diff", std::min(a.manifest().size_bytes(), b.manifest().size_bytes()));
  const Diff found = diff(a, b, threads_of(args), bar.update());
  bar.finish();
  print(args, diff_json(a.path(), b.path(), found), diff_text(a.path(), b.path(), found, args.has("all")));
  return found.equal() ? kOk : kNot;
}

int reshard(const Args& args) {
  const std::string output = output_of(args);
  const Found found = complete_of(args.get("PATH"));
  std::vector<std::string> assignments{"train.dtype=" + found.manifest->dtype};
  for (const std::string axis : {"dp", "pp", "tp", "chunks"}) {
    if (args.has(axis)) assignments.push_back(fmt::format("mesh.{}={}", axis, args.get(axis)));
  }
  if (args.has("zero")) assignments.push_back("optim.zero=" + args.get("zero"));
  for (const std::string& assignment : args.list("set")) assignments.push_back(assignment);
  const train::Loaded target = config_of(found, assignments);
  train::Resharded made = train::reshard(found.path, *found.manifest, target, threads_of(args));
  made.manifest.created = utc_text(SystemClock().wall_s());
  Bar bar("reshard", found.manifest->size_bytes());
  const std::string path = write_checkpoint(output, made.manifest, made.files, bar.update());
  bar.finish();
  fmt::print("{}\n", path);
  return kOk;
}

int import_weights(const Args& args) {
  require_word(args, "format", {"hf"});
  const std::string output = output_of(args), from = args.get("HF_DIR");
  const nn::ModelConfig model = hf::read_model(from);
  std::random_device random;
  Manifest manifest;
  manifest.run = hash_hex(std::uint64_t{random()} << 32U | random());
  manifest.created = utc_text(SystemClock().wall_s());
  manifest.version = kVersion;
  manifest.config = train::load_text(hf::to_toml(model), from + "/config.json", {}).resolved;
  Bar bar("import", 0);
  const std::string path = hf::import_model(from, model, manifest, output, bar.update());
  bar.finish();
  fmt::print("{}\n", path);
  return kOk;
}

int export_weights(const Args& args) {
  require_word(args, "format", {"hf"});
  if (args.has("dtype")) require_word(args, "dtype", {"fp32", "bf16"});
  const std::string output = output_of(args);
  const Found found = complete_of(args.get("PATH"));
  hf::ExportOptions options;
  options.max_shard_bytes = size_of_option(args, "max-shard-size");
  if (args.has("dtype")) options.dtype = args.get("dtype") == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  const nn::ModelConfig model = config_of(found, {}).settings.model;
  const Parameters parameters(found.path);
  Bar bar("export", hf::export_bytes(parameters, options));
  options.progress = bar.update();
  hf::export_model(parameters, model, output, options);
  bar.finish();
  fmt::print("{}\n", output);
  return kOk;
}

int prune_them(const Args& args) {
  if (!args.has("keep-last") && !args.has("keep-every")) {
    throw user_error("ckpt.rule", "there is no rule for what stays", "give --keep-last, or --keep-every, or both");
  }
  const std::string dir = directory_of(args);
  PruneOptions options{.policy = {}, .dry_run = args.has("dry-run"), .verify = !args.has("no-verify")};
  options.threads = threads_of(args);
  if (args.has("keep-last")) options.policy.keep_last = args.get_int("keep-last", 1);
  if (args.has("keep-every")) options.policy.keep_every = args.get_int("keep-every", 1);
  std::optional<Bar> bar;
  if (options.verify) options.progress = bar.emplace("verify", 0).update();
  const Pruned pruned = prune(dir, options);
  if (bar) bar->finish();
  return print(args, prune_json(pruned), prune_text(pruned));
}

int pin_it(const Args& args) {
  const Place place = place_of(args.get("PATH"));
  pin(place.dir, place.step);
  fmt::print("step {} of {} is pinned\n", place.step, place.dir);
  return kOk;
}

int unpin_it(const Args& args) {
  const Place place = place_of(args.get("PATH"));
  unpin(place.dir, place.step);
  fmt::print("step {} of {} is not pinned\n", place.step, place.dir);
  return kOk;
}

int repair_them(const Args& args) {
  const std::string dir = directory_of(args);
  RepairOptions options{.dry_run = args.has("dry-run"), .verify = args.has("verify"), .threads = threads_of(args)};
  std::optional<Bar> bar;
  if (options.verify) {
    std::int64_t total_bytes = 0;
    for (const Found& one : list(dir)) {
      if (one.condition == Condition::complete) total_bytes += one.manifest->size_bytes();
    }
    bar.emplace("verify", total_bytes);
    options.progress = bar->update();
  }
  const RepairReport report = repair(dir, options);
  if (bar) bar->finish();
  const int code = print(args, repair_json(dir, report), repair_text(dir, report));
  if (report.unreadable.empty()) return code;
  throw Error(
      "ckpt.unreadable", Blame::storage,
      fmt::format("{} cannot be read: {}", report.unreadable.front().path, report.unreadable.front().reasons.front()),
      "what cannot be read is not known to be damaged, and is left alone");
}

int measure(const Args& args) {
  const std::string dir = directory_of(args);
  BenchOptions options{.size_bytes = size_of_option(args, "size"), .threads = threads_of(args)};
  Bar bar("bench", bench_bytes(options));
  options.progress = bar.update();
  const BenchReport report = bench(dir, options);
  bar.finish();
  return print(args, bench_json(report), bench_text(report));
}

const Option kJson{.name = "json", .doc = "One JSON document instead of text."};
const Option kDryRun{.name = "dry-run", .doc = "Only says what would be done.", .letter = 'n'};
const Option kThreads{
    .name = "threads", .value = "N", .doc = "Blocks of 16 MiB that are read at a time.", .default_text = "2"};
const Option kFormat{.name = "format", .value = "FORMAT", .doc = "Of the other side: hf.", .default_text = "hf"};
const Positional kDir{.name = "DIR", .doc = "A directory of checkpoints: checkpoint.dir of a run."};
const Positional kPath{.name = "PATH", .doc = "A checkpoint, or a directory of them: its newest complete one."};
const Positional kCommitted{.name = "PATH", .doc = "A committed checkpoint."};

Option output(std::string doc) { return {.name = "output", .value = "DIR", .doc = std::move(doc), .letter = 'o'}; }
Option axis(std::string name, std::string doc) {
  return {.name = std::move(name), .value = "N", .doc = std::move(doc)};
}

const Tool kTool{
    .name = "ms-ckpt",
    .summary = "list, verify, compare, convert and prune checkpoints",
    .commands =
        {{.name = "ls",
          .summary = "list the checkpoints of a directory, and what a run would resume from",
          .positionals = {kDir},
          .options = {kJson},
          .run = list_them,
          .description = "Oldest first. Shows what is being saved, or was left by a killed save, and what is damaged, "
                         "too, and why. Reads manifests and sizes, not the data."},
         {.name = "show",
          .summary = "show what a checkpoint holds",
          .positionals = {kPath},
          .options = {{.name = "params", .doc = "Every parameter with its shape and the states that are stored."},
                      {.name = "config", .doc = "The resolved configuration of the run that wrote it, as TOML."},
                      kJson},
          .run = show},
         {.name = "verify",
          .summary = "read everything and check it against its hashes",
          .positionals = {{.name = "PATH", .doc = "A checkpoint, or a directory: every committed one in it."}},
          .options = {{.name = "newest", .doc = "Of a directory, only the newest complete one."}, kThreads, kJson},
          .run = verify_them,
          .description = "Exits 0 where all of them are sound, 1 where one is not."},
         {.name = "diff",
          .summary = "compare two checkpoints, whatever layouts wrote them",
          .positionals = {{.name = "A", .doc = "A checkpoint, or a directory: its newest complete one."},
                          {.name = "B", .doc = "Another."}},
          .options = {{.name = "all", .doc = "Also the states that are equal."}, kThreads, kJson},
          .run = compare,
          .description =
              "Compares configuration, mesh, position, and every state of every parameter. Exits 0 where the training "
              "state is the same bit by bit: step, data position, parameters and optimizer. The configuration and the "
              "mesh may differ; what of them does is shown."},
         {.name = "reshard",
          .summary = "write a checkpoint anew for another layout",
          .positionals = {kPath},
          .options = {output("The directory of checkpoints to write into."),
                      axis("dp", "Data-parallel replicas."),
                      axis("pp", "Pipeline stages."),
                      axis("tp", "Tensor-parallel ranks."),
                      axis("chunks", "Virtual stages of a pipeline rank."),
                      axis("zero", "ZeRO stage."),
                      {.name = "set",
                       .value = "KEY=VALUE",
                       .doc = "Sets another key of the configuration that is stored.",
                       .many = true},
                      kThreads},
          .run = reshard,
          .description = "What is not given stays as it is. A run loads any layout by itself: this is for who wants "
                         "the files of one. Prints the path of the new checkpoint."},
         {.name = "import",
          .summary = "make a checkpoint of a Hugging Face model",
          .positionals = {{.name = "HF_DIR", .doc = "A directory with config.json and safetensors."}},
          .options = {output("The directory of checkpoints to write into."), kFormat},
          .run = import_weights,
          .description = "The checkpoint is of step 0 and has no optimizer's state; ms-ckpt show --config prints the "
                         "[model] that it needs. Prints its path."},
         {.name = "export",
          .summary = "write a checkpoint's weights as a Hugging Face model",
          .positionals = {kPath},
          .options = {output("The directory to write, absent or empty."),
                      kFormat,
                      {.name = "dtype", .value = "TYPE", .doc = "fp32 or bf16; otherwise as they are stored."},
                      {.name = "max-shard-size",
                       .value = "SIZE",
                       .doc = "No file of weights becomes larger, unless a single tensor is.",
                       .default_text = "5GB"}},
          .run = export_weights},
         {.name = "prune",
          .summary = "remove old checkpoints",
          .positionals = {kDir},
          .options = {{.name = "keep-last", .value = "N", .doc = "The newest N complete ones stay."},
                      {.name = "keep-every", .value = "N", .doc = "Those of steps that are multiples of N stay."},
                      {.name = "no-verify", .doc = "Trusts sizes, reads nothing."},
                      kDryRun,
                      kThreads,
                      kJson},
          .run = prune_them,
          .description = "Pinned ones stay, and the newest complete one stays whatever the rules say. That one is read "
                         "first: if it is not sound, nothing is removed. Refused while a run writes there: "
                         "checkpoint.keep_last is for runs."},
         {.name = "pin",
          .summary = "keep a checkpoint whatever prune is asked",
          .positionals = {kCommitted},
          .run = pin_it},
         {.name = "unpin", .summary = "undo pin", .positionals = {kCommitted}, .run = unpin_it},
         {.name = "repair",
          .summary = "clear what killed saves left, and set damaged checkpoints aside",
          .positionals = {kDir},
          .options = {{.name = "verify", .doc = "Reads all data; otherwise manifests and sizes are looked at."},
                      kDryRun,
                      kThreads,
                      kJson},
          .run = repair_them,
          .description = "Refused while a run writes there. A run does the same by itself when it starts."},
         {.name = "bench",
          .summary = "measure saving and loading against plain writes and reads",
          .positionals = {{.name = "DIR", .doc = "A directory of the file system to measure."}},
          .options = {{.name = "size", .value = "SIZE", .doc = "Of the file.", .default_text = "2GiB"},
                      kThreads,
                      kJson},
          .run = measure,
          .description = "Takes twice the size in memory and once on the disk, and leaves nothing behind."}},
    .description =
        "A checkpoint is a directory, step-N, that ms-train commits by a rename; what is in it is explained in "
        "ms-ckpt(5). It can be loaded, compared and resharded whatever mesh wrote it.",
    .examples = {{.command = "ms-ckpt ls runs/a/ckpt", .doc = "What is there?"},
                 {.command = "ms-ckpt verify --newest runs/a/ckpt", .doc = "Is the newest one sound?"},
                 {.command = "ms-ckpt export --format hf -o gpt2-ours runs/a/ckpt",
                  .doc = "Hand the weights on to other programs:"},
                 {.command = "ms-ckpt prune --keep-last 3 --keep-every 10000 --dry-run runs/a/ckpt",
                  .doc = "What would go?"}},
    .see_also = {"ms-ckpt(5)", "ms-train(1)", "ms.toml(5)", "ms-exit(7)"}};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
