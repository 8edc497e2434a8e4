// torch.distributed.checkpoint: .metadata, a pickle, says where the items of the files __RANK_N.distcp are. It is
// written last.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "foreign/checkpoint.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

namespace fs = std::filesystem;
using unpack::PickleValue;

constexpr std::string_view kMetadata = ".metadata", kSuffix = ".distcp";
constexpr std::int64_t kMostMetadataBytes = std::int64_t{96} << 20;
constexpr std::size_t kLeastBoxBytes = 16;  // of a pickle, for what it does not share
constexpr std::size_t kMostMetadataMemory = std::size_t{320} << 20;

std::vector<std::string> data_files(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (name.ends_with(kSuffix)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

// The last part of a class's name: torch has moved some of them between modules.
std::string class_of(const PickleValue& value) {
  const std::string global = value.global();
  return global.starts_with("torch.") ? global.substr(global.rfind('.') + 1) : "";
}

// A tensor's type is the first of its properties, in a tuple or by name.
const Dtype* dtype_in(const PickleValue& properties) {
  const PickleValue state = properties.state();
  return dtype_of((state.is_list() ? state.item(0) : state.find("dtype")).global());
}

class MetadataReader {
 public:
  MetadataReader(Checkpoint& to, const PickleValue& metadata, std::size_t most_boxes)
      : to_(to), state_(metadata.state()), most_boxes_(most_boxes) {}

  void read() {
    const PickleValue tensors = state_.find("state_dict_metadata"), storage = state_.find("storage_data");
    if (!tensors.is_dict() || !storage.is_dict()) {
      problem("metadata", ".metadata has no state_dict_metadata or no storage_data");
      return;
    }
    for (std::size_t i = 0; i < tensors.size(); ++i)
      entry(std::string(tensors.key(i).text().value_or("?")), tensors.value(i));
    for (std::size_t i = 0; i < storage.size(); ++i) {
      const PickleValue key = storage.key(i), info = storage.value(i);
      if (class_of(key) == "MetadataIndex" && class_of(info) == "_StorageInfo")
        item(key.state(), info.state());
      else
        problem("metadata", fmt::format("the place of an item is a {} and a {}, which is not known",
                                        plain_text(key.global(), 80), plain_text(info.global(), 80)));
    }
    for (const Tensor& tensor : to_.tensors) {
      for (const Box& box : tensor.boxes) {
        if (box.item == kNoItem) not_stored(tensor.name);
      }
    }
    for (const auto& [name, item] : to_.objects) {
      if (item == kNoItem) not_stored(name);
    }
    std::erase_if(to_.objects, [](const auto& object) { return object.second == kNoItem; });
    for (Tensor& tensor : to_.tensors) std::erase_if(tensor.boxes, [](const Box& box) { return box.item == kNoItem; });
    facts();
  }

 private:
  static constexpr std::uint32_t kNoItem = 0xffffffff;
  struct Index {
    std::size_t tensor = 0, object = 0;
    bool is_tensor = false;
    std::map<std::vector<std::int64_t>, std::size_t> boxes = {};  // by offsets
  };

  void problem(std::string code, std::string text) { to_.problems.push_back({std::move(code), std::move(text)}); }
  void not_stored(const std::string& name) {
    problem("not-stored",
            fmt::format("'{}' or a part of it is in no file, as .metadata has it", plain_text(name, 200)));
  }

  void entry(const std::string& name, const PickleValue& value) {
    Index index;
    if (class_of(value) == "BytesStorageMetadata") {
      index.object = to_.objects.size();
      to_.objects.emplace_back(name, kNoItem);
    } else if (class_of(value) == "TensorStorageMetadata") {
      Tensor tensor{.name = name, .dtype = dtype_in(value.state().find("properties")), .shape = {}, .boxes = {}};
      const auto shape = sizes_of(value.state().find("size"));
      bool sound = shape.has_value() && class_of(value.state().find("properties")) == "TensorProperties";
      if (tensor.dtype == nullptr)
        to_.unread.push_back({"type", fmt::format("tensor '{}' has a type that is not known", plain_text(name, 200))});
      if (sound) tensor.shape = *shape;
      index.is_tensor = true;
      index.tensor = to_.tensors.size();
      for (const PickleValue& chunk : value.state().find("chunks").items()) {
        if (++boxes_ > most_boxes_)
          throw user_error("data.unread", "a pickle whose shared values grow beyond all measure");
        sound = sound && class_of(chunk) == "ChunkStorageMetadata";
        const auto offsets = sizes_of(chunk.state().find("offsets")), sizes = sizes_of(chunk.state().find("sizes"));
        if (!offsets || !sizes || offsets->size() != tensor.shape.size() || sizes->size() != tensor.shape.size()) {
          sound = false;
          continue;
        }
        if (std::ranges::find(*sizes, 0) != sizes->end() && std::ranges::find(tensor.shape, 0) == tensor.shape.end())
          continue;  // of a rank without a part
        if (!index.boxes.emplace(*offsets, tensor.boxes.size()).second)
          problem("tiling", fmt::format("tensor '{}' has two parts at the same place", plain_text(name, 200)));
        tensor.boxes.push_back({.offsets = *offsets, .sizes = *sizes, .item = kNoItem});
      }
      if (!sound) problem("metadata", fmt::format("tensor '{}' is not described as torch does", plain_text(name, 200)));
      to_.tensors.push_back(std::move(tensor));
    } else {
      problem("metadata",
              fmt::format("'{}' is a {}, which is not known", plain_text(name, 200), plain_text(value.global(), 80)));
      return;
    }
    if (!by_name_.emplace(name, std::move(index)).second)
      problem("metadata", fmt::format("'{}' is there twice", plain_text(name, 200)));
  }

  void item(const PickleValue& key, const PickleValue& info) {
    const std::string name(key.find("fqn").text().value_or(""));
    const auto begin = info.find("offset").integer(), size = info.find("length").integer();
    const std::string path(info.find("relative_path").text().value_or(""));
    if (!begin || !size || *begin < 0 || *size < 0 || *begin > INT64_MAX - *size || path.empty()) {
      problem("metadata", fmt::format("the place of '{}' is not described as torch does", plain_text(name, 200)));
      return;
    }
    if (!is_inside(path)) {
      problem("path", fmt::format("'{}' is said to be in '{}', outside of the checkpoint", plain_text(name, 200),
                                  plain_text(path, 200)));
      return;
    }
    const auto [file, is_new] = files_.emplace(path, static_cast<std::uint32_t>(to_.files.size()));
    if (is_new) to_.files.push_back(path);
    Item item{.file = file->second, .begin = *begin, .size_bytes = *size};
    for (const PickleValue& transform : info.find("transform_descriptors").items())
      item.transform += std::string(item.transform.empty() ? "" : ", ") + std::string(transform.text().value_or("?"));
    const auto number = static_cast<std::uint32_t>(to_.items.size());
    to_.items.push_back(std::move(item));
    const auto found = by_name_.find(name);
    std::uint32_t* place = nullptr;
    if (found != by_name_.end() && !found->second.is_tensor) {
      place = &to_.objects[found->second.object].second;
    } else if (found != by_name_.end()) {
      Tensor& tensor = to_.tensors[found->second.tensor];
      const auto offsets = sizes_of(key.find("offset"));
      if (offsets && tensor.boxes.empty()) return;  // of a tensor that is empty, or not described
      const auto box = offsets ? found->second.boxes.find(*offsets) : found->second.boxes.begin();
      if (box != found->second.boxes.end())
        place = &tensor.boxes[box->second].item;
      else if (offsets && is_beyond(*offsets, tensor.shape))
        return;  // of a rank without a part
    }
    if (place == nullptr) {
      problem("metadata", fmt::format("{} has a part of '{}' that .metadata does not describe", plain_text(path, 200),
                                      plain_text(name, 200)));
    } else if (*place != kNoItem) {
      problem("metadata", fmt::format("a part of '{}' is there twice", plain_text(name, 200)));
    } else {
      *place = number;
    }
  }

  static bool is_beyond(const std::vector<std::int64_t>& offsets, const std::vector<std::int64_t>& shape) {
    for (std::size_t d = 0; d < std::min(offsets.size(), shape.size()); ++d) {
      if (offsets[d] >= shape[d]) return true;
    }
    return false;
  }

  // Neither the path itself nor a link leads out of the directory.
  bool is_inside(const std::string& path) {
    const auto known = files_.find(path);
    if (known != files_.end()) return true;
    const fs::path relative = fs::path(path).lexically_normal();
    if (relative.is_absolute() || relative.empty() || *relative.begin() == "..") return false;
    std::error_code error;
    const fs::path dir = fs::canonical(to_.path, error), file = fs::weakly_canonical(dir / relative, error);
    return error || !file.lexically_relative(dir).empty() ? *file.lexically_relative(dir).begin() != ".." : false;
  }

  void facts() {
    const auto fact = [&](std::string_view name, const PickleValue& value) {
      if (value.text()) to_.facts.emplace_back(name, plain_text(*value.text(), 200));
    };
    fact("version", state_.find("version"));
    const PickleValue meta = state_.find("storage_meta");
    fact("save_id", meta.state().find("save_id"));
  }

  Checkpoint& to_;
  const PickleValue state_;
  const std::size_t most_boxes_;
  std::size_t boxes_ = 0;
  std::unordered_map<std::string, Index> by_name_;
  std::map<std::string, std::uint32_t, std::less<>> files_;
};

// Looks at what lies beside the files that .metadata names, and at when they were written.
void look_around(Checkpoint& to) {
  std::error_code error;
  const auto metadata_time = fs::last_write_time(to.path + "/" + std::string(kMetadata), error);
  for (const std::string& name : data_files(to.path)) {
    // Until 2.3, torch left an empty file of a rank whose tensors all were another one's.
    if (std::ranges::find(to.files, name) == to.files.end() && fs::file_size(to.path + "/" + name, error) != 0)
      to.doubts.push_back({"unnamed-file", fmt::format("{} is not named by .metadata: another save may have left it",
                                                       plain_text(name, 200))});
    const auto time = fs::last_write_time(to.path + "/" + name, error);
    if (!error && time > metadata_time + std::chrono::seconds(1))
      to.doubts.push_back(
          {"stale",
           fmt::format(".metadata is older than {}: a later save may have been cut off, or the files were copied",
                       plain_text(name, 200))});
  }
  if (fs::exists(to.path + "/.metadata.tmp", error))
    to.doubts.push_back({"stale", "there is a .metadata.tmp: a save was cut off, or is still being written"});
}

}  // namespace

bool is_dcp(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && (fs::exists(fs::path(path) / kMetadata, error) ||
                                           fs::exists(path + "/.metadata.tmp", error) || !data_files(path).empty());
}

void open_dcp(Checkpoint& to) {
  const std::string path = to.path + "/" + std::string(kMetadata);
  std::error_code error;
  if (!fs::exists(path, error) && !error) {
    to.finished = false;
    to.files = data_files(to.path);
    to.problems.push_back({"unfinished",
                           ".metadata is missing: the save was cut off before its end, is still being written, or the "
                           "file was left out of a copy"});
    return;
  }
  const Source source(path);
  if (source.size_bytes() > kMostMetadataBytes) {
    to.unread.push_back({"metadata", fmt::format(".metadata has {} bytes, which is not read", source.size_bytes())});
    return;
  }
  const std::string bytes = source.text(0, source.size_bytes());
  try {
    const unpack::Pickle pickle(bytes, kMostMetadataMemory);
    if (class_of(pickle.root()) != "Metadata") {
      to.problems.push_back({"metadata", fmt::format(".metadata is a {}, not a Metadata of torch",
                                                     plain_text(pickle.root().global(), 80))});
      return;
    }
    MetadataReader(to, pickle.root(), bytes.size() / kLeastBoxBytes).read();
  } catch (const Error& damaged) {
    (damaged.kind() == "data.unread" ? to.unread : to.problems)
        .push_back({"metadata", fmt::format(".metadata cannot be used: {}", damaged.message())});
    return;
  }
  look_around(to);
}

}  // namespace ms::foreign
