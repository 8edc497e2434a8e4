// Checkpoints of other programs as one thing: tensors, each in boxes, each box an item of a file. A row of formats()
// makes that of a directory or file; listing, showing and verifying are written once over it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foreign/torch_file.h"

namespace ms::foreign {

// A part of a file that was written as one. Archives are read when they are wanted, since there may be a million.
struct Item {
  std::uint32_t file = 0;  // in Checkpoint::files
  std::int64_t begin = 0, size_bytes = 0;
  std::string transform = {};  // "stream.zstd/1": what was done to its bytes; empty: nothing
};

struct Box {
  std::vector<std::int64_t> offsets, sizes;
  std::uint32_t item = 0;
  std::string saved = {};  // the tensor of the item, by its name in there
};

struct Tensor {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<Box> boxes;
};

// An archive that was read, to find its tensors by name.
struct ReadItem {
  explicit ReadItem(TorchFile read);
  ReadItem(const ReadItem&) = delete;
  ReadItem& operator=(const ReadItem&) = delete;
  TorchFile file;
  std::unordered_map<std::string_view, const SavedTensor*> tensors;  // of `file`; the first one of each name
};

// The archives of a checkpoint that hold several tensors: reading one again for each takes quadratic time. Thread-safe.
class ReadItems {
 public:
  std::shared_ptr<const ReadItem> find(std::uint32_t item) const;  // nullptr: it is not kept
  void keep(std::uint32_t item, const std::shared_ptr<const ReadItem>& read);

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<const ReadItem>> items_;
};

struct Checkpoint {
  std::string_view format;
  std::string path;
  std::vector<std::string> files;  // relative to `path`; one that is empty is `path` itself
  std::vector<Item> items;
  std::vector<Tensor> tensors;
  std::vector<std::pair<std::string, std::uint32_t>> objects;   // that are no tensors: name, item
  std::vector<std::pair<std::string, std::uint32_t>> archives;  // files of torch.save: what stands before names, item
  std::size_t num_values = 0;                                   // that are no tensors, in these files
  std::vector<std::pair<std::string, std::string>> facts;       // what it says about itself
  bool finished = true;                                         // false: the save was cut off; `problems` says so
  std::vector<Problem> problems;                                // of what describes it
  std::vector<Problem> unread;  // what is not known here: whether it is sound cannot be told
  std::vector<Problem> doubts;  // what may be as it should
  std::shared_ptr<ReadItems> read = std::make_shared<ReadItems>();
  std::string path_of(std::uint32_t file) const { return files[file].empty() ? path : path + "/" + files[file]; }
};

struct Format {
  std::string_view name;
  std::string_view doc;
  bool (*recognises)(const std::string& path);
  // Never throws for what is wrong with the checkpoint: those are its problems. Error("ckpt.read", storage).
  void (*open)(Checkpoint& to);
};
const std::vector<Format>& formats();
const Format* format_of(const std::string& path);  // nullptr: of no known format

// Reads a checkpoint; one of no known format has nothing but the problem, and is not finished.
Checkpoint open(const std::string& path);

// A checkpoint of a directory, not yet read.
struct Place {
  std::string path;
  const Format* format = nullptr;
  std::optional<std::int64_t> step;  // as its name says: "step-100", "iter_0000100"
  double written_wall_s = 0;
};
// The path itself where it is a checkpoint of these, else those in that directory, the oldest first: by step where all
// have one, else by time. Beside these, what has a name like theirs counts as well, and so does a path that has the
// extension of a checkpoint: its format is "unrecognised". None: there are none, or it cannot be listed.
std::vector<Place> find_checkpoints(const std::string& path);

// Adds the problems of tensors whose boxes do not tile them: outside, overlapping, with holes.
void check_boxes(Checkpoint& checkpoint);

// The rows of formats().
bool is_dcp(const std::string& path);
void open_dcp(Checkpoint& to);
bool is_megatron(const std::string& path);
void open_megatron(Checkpoint& to);
bool is_deepspeed(const std::string& path);
void open_deepspeed(Checkpoint& to);
bool is_in_parts(const std::string& path);
void open_in_parts(Checkpoint& to);
bool is_torch_save(const std::string& path);
void open_torch_save(Checkpoint& to);

// Adds a file of torch.save in the directory of the checkpoint; `prefix` comes before the names of its tensors.
void add_torch_file(Checkpoint& to, const std::string& name, const std::string& prefix);

}  // namespace ms::foreign
