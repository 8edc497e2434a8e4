#include "ckpt/offline.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ckpt/directory.h"
#include "ckpt/file_writer.h"

namespace ms::ckpt {

namespace {

namespace fs = std::filesystem;

Manifest manifest_of(const std::string& checkpoint) {
  std::error_code error;
  if (!fs::is_directory(checkpoint, error)) {
    throw user_error("ckpt.path", fmt::format("{} is not a checkpoint: it is not a directory", checkpoint));
  }
  Found found = look(checkpoint);
  if (!found.manifest || !found.problem.empty()) {
    throw Error("ckpt.incomplete", Blame::storage,
                fmt::format("{} is not a complete checkpoint: {}", checkpoint, found.problem));
  }
  return std::move(*found.manifest);
}

struct FreeAligned {
  void operator()(std::byte* memory) const noexcept { ::operator delete (memory, std::align_val_t{kPageBytes}); }
};
using Image = std::unique_ptr<std::byte, FreeAligned>;

// A save that is taken back unless it was committed.
class Pending {
  static Directory begun(const Directory& dir, std::int64_t step) {
    begin_save(dir, step);
    return open_save(dir, step);
  }

 public:
  Pending(const Directory& dir, std::int64_t step) : dir_(dir), step_(step), saving_(begun(dir, step)) {}
  ~Pending() {
    if (!committed_) abandon(dir_, step_);
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  const Directory& directory() const { return saving_; }
  void publish(const Manifest& manifest) {
    commit(dir_, step_, to_json(manifest));
    committed_ = true;
  }

 private:
  const Directory& dir_;
  std::int64_t step_;
  Directory saving_;
  bool committed_ = false;
};

// Takes back a directory that was made for a checkpoint which did not come about. Its lock, all that is left in it
// then, is held meanwhile.
class NewDirectory {
 public:
  NewDirectory(const Directory& dir, bool is_new) : dir_(is_new ? &dir : nullptr) {}
  ~NewDirectory() {
    if (dir_ == nullptr) return;
    ::unlinkat(dir_->fd(), dir_->at("lock").c_str(), 0);
    ::rmdir(dir_->path().c_str());  // not where it holds anything
  }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;
  void keep() { dir_ = nullptr; }

 private:
  const Directory* dir_;
};

// The directory is locked, so that nobody adds one behind this look.
void refuse_existing(const std::string& dir, std::int64_t step) {
  std::error_code error;
  std::optional<std::int64_t> newest;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    newest = std::max(newest, step_from(at->path().filename().string()));
  }
  if (error) throw Error("ckpt.list", Blame::storage, fmt::format("cannot list '{}': {}", dir, error.message()));
  if (!newest || *newest < step) return;
  throw user_error(
      "ckpt.exists",
      fmt::format("'{}' already has {}, and the checkpoint to write is step {}", dir, step_name(*newest), step),
      "use another directory for --output; a run starts from a checkpoint in checkpoint.load and saves in its own "
      "checkpoint.dir");
}

}  // namespace

Parameters::Parameters(std::string checkpoint)
    : path_(std::move(checkpoint)), manifest_(manifest_of(path_)), index_(manifest_) {
  for (std::string& name : index_.parameters()) {
    Info info;
    for (int i = 0; i < kStates; ++i) {
      const auto state = static_cast<State>(i);
      const Piece* stored = index_.find(state, name);
      if (stored == nullptr) continue;
      const Slice& slice = stored->slice;
      if (info.states.empty()) {
        info.rows = slice.global_rows, info.cols = slice.global_cols, info.weight_dtype = stored->dtype;
      } else if (slice.global_rows != info.rows || slice.global_cols != info.cols) {
        throw Error(
            "ckpt.manifest", Blame::storage,
            fmt::format("{}: {} of {} is {} x {}, but its {} {} x {}", path_, to_string(state), name, slice.global_rows,
                        slice.global_cols, to_string(info.states.front()), info.rows, info.cols));
      }
      info.states.push_back(state);
    }
    info.name = std::move(name);
    list_.push_back(std::move(info));
  }
}

const Parameters::Info* Parameters::find(const std::string& name) const {
  const auto found = std::lower_bound(list_.begin(), list_.end(), name,
                                      [](const Info& info, const std::string& wanted) { return info.name < wanted; });
  return found == list_.end() || found->name != name ? nullptr : &*found;
}

void Parameters::read(State state, const std::string& name, std::span<std::byte> to) const {
  const Piece* stored = index_.find(state, name);
  if (stored == nullptr) {
    throw user_error("ckpt.mismatch", fmt::format("{} holds no {} of {}", path_, to_string(state), name));
  }
  const Piece all{.state = state,
                  .dtype = stored->dtype,
                  .slice = whole(name, stored->slice.global_rows, stored->slice.global_cols)};
  MS_ASSERT(static_cast<std::int64_t>(to.size()) == all.size_bytes(), "{} bytes for {} of {} bytes", to.size(), name,
            all.size_bytes());
  load(path_, index_, {{.piece = all, .to = to.data()}}, {});
}

std::vector<float> Parameters::read_f32(const std::string& name) const {
  const bool has_master = index_.find(State::master, name) != nullptr;
  const State state = has_master ? State::master : State::weight;
  const Info* info = find(name);
  const Piece* stored = index_.find(state, name);
  // A manifest may claim any shape: what the files do not hold is refused before memory is asked for.
  if (stored != nullptr) {
    index_.plan({{.state = state, .dtype = stored->dtype, .slice = whole(name, info->rows, info->cols)}});
  }
  std::vector<float> values(info == nullptr ? 0 : static_cast<std::size_t>(info->rows * info->cols));
  if (stored == nullptr || stored->dtype == tensor::DType::f32) {
    read(state, name, std::as_writable_bytes(std::span(values)));
    return values;
  }
  MS_ASSERT(stored->dtype == tensor::DType::bf16, "{} is {}", name, tensor::to_string(stored->dtype));
  std::vector<tensor::bfloat16> narrow(values.size());
  read(state, name, std::as_writable_bytes(std::span(narrow)));
  std::transform(narrow.begin(), narrow.end(), values.begin(),
                 [](tensor::bfloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); });
  return values;
}

std::string write_checkpoint(const std::string& dir, Manifest manifest, const std::vector<OfflineFile>& files,
                             const std::function<void(std::int64_t)>& progress) {
  std::error_code ignored;
  const bool is_new = !fs::exists(dir, ignored);
  const DirectoryLock lock(dir);
  NewDirectory made(lock.directory(), is_new);
  refuse_existing(dir, manifest.step);
  Pending pending(lock.directory(), manifest.step);
  manifest.files.clear();
  std::int64_t filled = 0;
  for (const OfflineFile& file : files) {
    MS_ASSERT(!file.pieces.empty(), "a file without pieces");
    const auto image_size = static_cast<std::size_t>(image_bytes(size_bound(file.pieces)));
    const Image image(static_cast<std::byte*>(::operator new (image_size, std::align_val_t{kPageBytes})));
    const FileWriter writer(file.pieces, {image.get(), image_size}, pending.directory().path());
    for (std::size_t i = 0; i < file.pieces.size(); ++i) {
      file.fill(i, writer.data(i));
      filled += file.pieces[i].size_bytes();
      if (progress) progress(filled);
    }
    manifest.files.push_back(
        writer.write(pending.directory(), rank_file_name(static_cast<int>(manifest.files.size())), std::stop_token{}));
  }
  pending.publish(manifest);
  made.keep();
  return dir + "/" + step_name(manifest.step);
}

}  // namespace ms::ckpt
