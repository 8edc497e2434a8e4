#include "train/checkpoints.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <deque>
#include <random>
#include <thread>
#include <tuple>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "ckpt/interval.h"
#include "ckpt/memory_files.h"
#include "mesh/mesh.h"
#include "train/restore.h"

namespace ms::train {

using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int kMaxFailedInARow = 3;
constexpr std::size_t kTypicalSteps = 21;  // of which the median is a step without a save

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string new_run_id() {
  std::random_device random;
  return hash_hex(std::uint64_t{random()} << 32 | random());
}

// What another checkpoint might be loaded in place of; anything else is wrong with the run itself.
bool is_of_the_checkpoint(const Error& error) {
  const std::string& kind = error.kind();
  return kind == "ckpt.damaged" || kind == "ckpt.incomplete" || kind == "ckpt.read" || kind == "ckpt.manifest";
}

}  // namespace

struct Checkpoints::Impl {
  const Plan& plan;
  const CheckpointConfig& config;
  std::string resolved;
  comm::World& world;
  Engine& engine;
  std::unique_ptr<tensor::Stream> stream = {};
  std::unique_ptr<comm::Communicator> everyone = {};  // to agree on what to load
  std::optional<ckpt::DirectoryLock> lock = {};       // on rank 0
  std::string run = {}, data = {};
  std::unique_ptr<ckpt::MemoryTier> memory = {};  // until the saver has it; nullptr: copies are not wanted
  std::optional<ckpt::Saver> saver = {};

  std::int64_t begun = -1, committed = -1;  // steps done, of the newest save
  std::int64_t heard_up_to = -1;            // votes for a save that were cast up to this step have been answered
  bool save_wanted = false;
  int failed_in_a_row = 0;
  double last_save_s = now_s();
  std::deque<double> typical = {};    // seconds of steps without a save
  double excess_s = 0;                // what steps took beyond that since the save began
  std::optional<double> cost_s = {};  // of the last save

  bool leads() const { return world.rank() == 0; }

  // Rank 0's text to all.
  std::string broadcast(std::string text) {
    double size = static_cast<double>(text.size());
    everyone->broadcast({reinterpret_cast<std::byte*>(&size), 1, 1, 1, DType::f64}, 0);
    stream->synchronize();
    const auto bytes = static_cast<std::size_t>(size);
    std::vector<std::int32_t> words((bytes + 3) / 4);
    std::memcpy(words.data(), text.data(), text.size());
    const auto count = static_cast<std::int64_t>(words.size());
    if (count > 0) everyone->broadcast({reinterpret_cast<std::byte*>(words.data()), 1, count, count, DType::i32}, 0);
    stream->synchronize();
    text.assign(reinterpret_cast<const char*>(words.data()), bytes);
    return text;
  }

  template <std::size_t N>
  std::array<double, N> sum(std::array<double, N> values) {
    everyone->all_reduce({reinterpret_cast<std::byte*>(values.data()), 1, N, N, DType::f64});
    stream->synchronize();
    return values;
  }

  // The manifest of the newest complete checkpoint below a step, as text; empty where there is none. Rank 0 only.
  std::string newest(std::int64_t below) const {
    std::vector<ckpt::Found> passed_over;
    const std::optional<ckpt::Found> found = ckpt::newest_complete(config.dir, below, &passed_over);
    for (const ckpt::Found& other : passed_over) {
      log::warn("train", "{} cannot be used: {}", other.path, other.problem);
    }
    return found ? read_file(found->path + "/" + std::string(ckpt::kManifestName)) : std::string();
  }

  void refuse_to_forget() const {
    for (const ckpt::Found& found : ckpt::list(config.dir)) {
      if (found.condition == ckpt::Condition::saving || found.condition == ckpt::Condition::deleting) continue;
      throw Error("ckpt.none", Blame::storage,
                  fmt::format("there are checkpoints in {}, but none of them can be loaded", config.dir),
                  "'ms-ckpt ls' says what is there; --fresh sets them aside and begins at step 0");
    }
  }

  void check_data(const ckpt::Manifest& manifest, const std::string& path) const {
    if (config.data == "restart") return;
    const auto seed = static_cast<std::uint64_t>(plan.settings.train.seed);
    const bool other_files = !manifest.data.source.empty() && manifest.data.source != data;
    if (!other_files && (manifest.data.seed == seed || manifest.data.samples == 0)) return;
    throw user_error("ckpt.data",
                     fmt::format("{} was trained on {} samples of other data: {}", path, manifest.data.samples,
                                 other_files ? "the token files, their weights or model.seq differ"
                                             : fmt::format("train.seed was {}", manifest.data.seed)),
                     "checkpoint.data = \"restart\" begins the data of this configuration at its first sample");
  }

  // What became of loading, summed over the world: ranks that failed, of them those that found damage; bytes read.
  std::array<double, 3> load_from(const std::string& directory, const ckpt::Manifest& manifest) {
    std::array<double, 3> tally{};
    try {
      const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / world.ranks_on_node());
      tally[2] = static_cast<double>(restore(engine, manifest, directory, threads).bytes_read);
    } catch (const Error& error) {
      if (!is_of_the_checkpoint(error)) throw;
      log::warn("train", "{}", error.message());
      tally = {1, error.kind() == "ckpt.read" ? 0.0 : 1.0, 0};
    }
    return sum(tally);
  }

  void open_memory() {
    if (config.memory_dir.empty()) return;
    const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
    std::vector<ckpt::Piece> pieces;
    for (const ckpt::Held& held : engine.state()) pieces.push_back(held.piece);
    memory =
        std::make_unique<ckpt::MemoryTier>(ckpt::MemoryOptions{.root = ckpt::memory_root(config.memory_dir, config.dir),
                                                               .mesh = plan.mesh,
                                                               .first_group_id = groups.count() + 2},
                                           pieces, world, engine.device());
  }

  // Loads the copies that the nodes keep of this checkpoint; false where they cannot be used. Collective.
  bool load_from_memory(const ckpt::Manifest& manifest) {
    if (!memory) return false;
    const ckpt::Manifest mine = this->manifest(0, 0);
    const auto layout = [](const ckpt::Manifest& m) { return std::tuple(m.dp, m.pp, m.tp, m.chunks, m.zero, m.dtype); };
    ckpt::MemoryTier::Fetched copies{.path = {}, .problem = "it was saved in another layout"};
    if (layout(manifest) == layout(mine)) copies = memory->fetch(manifest, *everyone);
    if (!copies.path.empty() && load_from(copies.path, manifest)[0] > 0) {
      copies = {.path = {}, .problem = "a copy cannot be read, or is damaged"};
    }
    if (copies.path.empty() && leads()) {
      log::warn("train", "step {} is not loaded from memory but from storage: {}", manifest.step, copies.problem);
    }
    return !copies.path.empty();
  }

  ckpt::Manifest manifest(std::int64_t done, std::int64_t samples) const {
    ckpt::Manifest made;
    made.step = done;
    made.run = run;
    made.created = now_utc();
    made.version = kVersion;
    made.config = resolved;
    made.dp = plan.mesh.dp;
    made.pp = plan.mesh.pp;
    made.tp = plan.mesh.tp;
    made.chunks = plan.chunks;
    made.zero = static_cast<int>(plan.settings.optim.zero);
    made.dtype = plan.settings.train.dtype;
    made.data = {samples, static_cast<std::uint64_t>(plan.settings.train.seed), data};
    return made;
  }

  double interval_s() const {
    if (config.mtbf_s > 0 && cost_s) return ckpt::daly_interval_s(std::max(*cost_s, 1e-3), config.mtbf_s);
    return config.every_s;
  }

  // Starts a save; false where the policy is to skip it.
  bool begin(std::int64_t done, std::int64_t samples) {
    if (config.when_busy == "wait") await();
    const tensor::Event ready = engine.state_ready();
    const std::optional<tensor::Event> copied = saver->begin(manifest(done, samples), ready, done - 1);
    heard_up_to = done - 1;
    save_wanted = false;
    last_save_s = now_s();
    if (!copied) {
      if (leads()) log::warn("train", "step {} is not saved: the save before is still being written", done);
      return false;
    }
    engine.update_after(*copied);
    begun = done;
    excess_s = 0;
    return true;
  }

  // Waits until nothing is being saved.
  void await() {
    while (const std::optional<ckpt::SaveOutcome> ended = saver->finish()) note(ended);
  }

  void note(const std::optional<ckpt::SaveOutcome>& outcome) {
    if (!outcome) return;
    if (outcome->committed) {
      committed = outcome->step;
      failed_in_a_row = 0;
      cost_s = excess_s;
      if (!leads()) return;
      for (const std::string& path : outcome->set_aside) log::warn("train", "an abandoned checkpoint is now {}", path);
      log::info("train", "checkpoint of step {}: committed {:.1f} s after the step, {} a rank written in {:.1f} s",
                outcome->step, outcome->total_s, format_size(static_cast<double>(outcome->bytes)), outcome->write_s);
      for (const std::string& path : outcome->pruned) log::info("train", "{} is deleted", path);
      return;
    }
    ++failed_in_a_row;
    // Whoever met the cause tells it; rank 0, that there is no checkpoint.
    if (leads() || !outcome->problem.empty()) {
      log::error("train", "the checkpoint of step {} failed{}{}", outcome->step, outcome->problem.empty() ? "" : ": ",
                 outcome->problem);
    }
    last_problem = outcome->problem;
    if (failed_in_a_row >= kMaxFailedInARow) throw failure(outcome->step);
  }

  Error failure(std::int64_t step) const {
    return {"ckpt.failed", Blame::storage,
            fmt::format("the checkpoint of step {} could not be written to {}{}{}{}", step, config.dir,
                        failed_in_a_row > 1 ? fmt::format(", the {} that failed on end", ordinal(failed_in_a_row)) : "",
                        last_problem.empty() ? "" : ": ", last_problem)};
  }
  static std::string ordinal(int n) { return n == 2 ? "second" : n == 3 ? "third" : fmt::format("{}th", n); }

  std::string last_problem = {};
};

Checkpoints::Checkpoints(const Plan& plan, const std::string& resolved, comm::World& world, Engine& engine, bool fresh)
    : impl_(new Impl{
          .plan = plan, .config = plan.settings.checkpoint, .resolved = resolved, .world = world, .engine = engine}) {
  const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
  comm::Group group{"resume", groups.count(), groups.world().ranks};
  impl_->stream = engine.device().make_stream(group.name, tensor::StreamKind::comm);
  impl_->everyone = world.open(group, *impl_->stream);
  if (!impl_->leads()) return;
  const std::string& dir = impl_->config.dir;
  impl_->lock.emplace(dir);
  if (const int cleaned = ckpt::clean_up(dir); cleaned > 0) {
    log::info("train", "{} left by saves that did not end: deleted",
              plural(static_cast<std::size_t>(cleaned), "thing"));
  }
  if (!fresh) return;
  const std::string aside = ckpt::set_aside(dir);
  if (!aside.empty()) log::warn("train", "the checkpoints that were in {} are now in {}", dir, aside);
}

Checkpoints::~Checkpoints() = default;

Origin Checkpoints::resume(const std::string& data_fingerprint) {
  Impl& my = *impl_;
  my.data = data_fingerprint;
  my.open_memory();
  Origin origin;
  std::string run;
  bool copies_stay = false;
  for (std::int64_t below = INT64_MAX;;) {
    const std::string text = my.broadcast(my.leads() ? my.newest(below) : std::string());
    if (text.empty()) break;
    // Every rank names it alike: by the step that the manifest tells.
    const ckpt::Manifest manifest = ckpt::parse_manifest(text, my.config.dir);
    const std::string path = my.config.dir + "/" + ckpt::step_name(manifest.step);
    if (my.leads()) {
      check_model(my.plan.settings.model, manifest, path);
      my.check_data(manifest, path);
    }
    const double start = now_s();
    const bool in_memory = below == INT64_MAX && my.load_from_memory(manifest);
    const std::array<double, 3> tally = in_memory ? std::array<double, 3>{} : my.load_from(path, manifest);
    if (tally[0] == 0) {
      my.engine.share_state();
      origin = {.step = manifest.step,
                .samples = my.config.data == "restart" ? 0 : manifest.data.samples,
                .path = path,
                .restored = true,
                .bytes = manifest.size_bytes(),
                .bytes_read = static_cast<std::int64_t>(tally[2]),
                .seconds = now_s() - start};
      run = manifest.run;
      if (my.leads()) {
        log::info("train", "going on from {}: step {}, {}{} of {} read in {:.2f} s", path, manifest.step,
                  in_memory ? "from memory, " : "", format_size(tally[2]),
                  format_size(static_cast<double>(origin.bytes)), origin.seconds);
      }
      if (in_memory) my.memory->settle(&manifest);
      copies_stay = in_memory;
      break;
    }
    below = manifest.step;
    if (!my.leads()) continue;
    log::warn("train", "{} cannot be loaded, trying the one before", path);
    if (tally[1] > 0) log::warn("train", "it is kept as {}", ckpt::mark_damaged(my.config.dir, manifest.step));
  }
  if (my.leads()) {
    if (!origin.restored) my.refuse_to_forget();
    if (run.empty()) run = new_run_id();
  }
  if (my.memory && !copies_stay) my.memory->settle(nullptr);
  my.run = my.broadcast(run);
  my.begun = my.committed = origin.restored ? origin.step : -1;

  const mesh::Groups groups(my.plan.mesh, my.plan.chunks, my.plan.settings.model.tied_embeddings);
  my.saver.emplace(ckpt::SaverOptions{.dir = my.config.dir,
                                      .keep_last = my.config.keep_last,
                                      .keep_every = my.config.keep_every,
                                      .wait_when_busy = my.config.when_busy == "wait",
                                      .group_id = groups.count() + 1},
                   my.engine.state(), my.world, my.engine.device(), std::move(my.memory));
  return origin;
}

void Checkpoints::cast(Votes& votes) {
  votes.saving = impl_->saver->votes();
  if (!impl_->leads() || impl_->config.every_steps > 0) return;
  const double interval = impl_->interval_s();
  if (interval > 0 && now_s() - impl_->last_save_s >= interval) votes.save = 1;
}

std::optional<ckpt::SaveOutcome> Checkpoints::heard(std::int64_t step, const Votes& sum) {
  if (sum.save > 0 && step > impl_->heard_up_to) impl_->save_wanted = true;
  const std::optional<ckpt::SaveOutcome> ended = impl_->saver->agreed(step, sum.saving);
  impl_->note(ended);
  return ended;
}

std::int64_t Checkpoints::begun() const { return impl_->begun; }
bool Checkpoints::busy() const { return impl_->saver->busy(); }

void Checkpoints::boundary(std::int64_t done, std::int64_t samples) {
  Impl& my = *impl_;
  const std::int64_t every = my.config.every_steps;
  if (!(every > 0 && done % every == 0) && !my.save_wanted) return;
  if (my.begin(done, samples) && !my.config.async) my.await();
}

void Checkpoints::step_took(double seconds) {
  Impl& my = *impl_;
  if (my.saver->busy()) {
    if (my.typical.empty()) return;
    std::vector<double> sorted(my.typical.begin(), my.typical.end());
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    my.excess_s += std::max(0.0, seconds - sorted[sorted.size() / 2]);
    return;
  }
  my.typical.push_back(seconds);
  if (my.typical.size() > kTypicalSteps) my.typical.pop_front();
}

std::string Checkpoints::finish(std::int64_t done, std::int64_t samples) {
  Impl& my = *impl_;
  my.await();
  if (my.committed != done) {
    MS_ASSERT(my.begin(done, samples), "a saver that has finished is busy");
    my.await();
  }
  if (my.committed != done) throw my.failure(done);
  if (done >= my.plan.settings.train.steps) my.saver->drop_copies();  // nothing is left to go on with
  return my.config.dir + "/" + ckpt::step_name(done);
}

}  // namespace ms::train
