#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "foreign/checkpoint.h"
#include "foreign/source.h"

namespace ms::foreign {
namespace {

namespace fs = std::filesystem;

std::string beginning_of(const std::string& path) {
  std::error_code error;
  std::string text;
  if (!fs::is_regular_file(path, error)) return text;
  std::ifstream file(path, std::ios::binary);  // one that may not be read is none
  std::array<char, 4> bytes{};
  file.read(bytes.data(), bytes.size());
  return text.assign(bytes.data(), static_cast<std::size_t>(file.gcount()));
}

// The number behind the last of these words in a name; or the name, where it is a number.
std::optional<std::int64_t> step_of(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::size_t at = std::string::npos;
  for (const std::string_view word : {"step", "iter", "iteration", "checkpoint", "ckpt", "epoch"}) {
    for (std::size_t found = name.find(word); found != std::string::npos; found = name.find(word, found + 1)) {
      std::size_t digits = found + word.size();
      if (digits < name.size() && std::string_view("-_=").find(name[digits]) != std::string_view::npos) ++digits;
      const bool is_number = digits < name.size() && name[digits] >= '0' && name[digits] <= '9';
      if (is_number && (at == std::string::npos || word == "step" || word.starts_with("iter"))) at = digits;
    }
  }
  if (at == std::string::npos) at = 0;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), step);
  const bool whole = at > 0 || end == name.data() + name.size();
  return error == std::errc() && whole && step >= 0 ? std::optional(step) : std::nullopt;
}

constexpr std::array<std::string_view, 4> kExtensions{".pt", ".pth", ".bin", ".ckpt"};

std::string_view extension_of(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kExtensions, [&](std::string_view end) { return name.ends_with(end); });
  return found == kExtensions.end() ? "" : *found;
}

std::string without_digits(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

// The name without its digits, where it has a step: "step-.pt". Many files that are no checkpoints end in ".bin", such
// as openvino_model.bin: names of these have a form as well.
std::string form_of_name(const std::string& name) {
  return step_of(name) || extension_of(name) == ".bin" ? without_digits(name) : "";
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Whether it is a directory of safetensors: sound, and not of a format that is read here.
bool has_safetensors(const std::string& path) {
  return std::ranges::any_of(names_in(path), [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
           name.ends_with(".bin.index.json");
  });
}

// The format of a directory in a checkpoint that has several: "optimizer_0". Any other name may be a checkpoint's own.
const Format* part_format(const std::string& path, const std::string& name) {
  const std::string part = path + "/" + name;
  std::error_code error;
  constexpr std::array<std::string_view, 6> kParts{"pytorch_model_fsdp", "pytorch_model", "model", "weights",
                                                   "optimizer",          "optim"};
  std::string_view kind = name;
  kind = kind.substr(0, kind.find_last_not_of("0123456789") + 1);
  if (kind.size() < name.size() && kind.ends_with('_')) kind.remove_suffix(1);
  if (std::ranges::find(kParts, kind) == kParts.end() || !fs::is_directory(part, error)) return nullptr;
  for (const Format& format : formats()) {
    if (format.open != open_in_parts && format.recognises(part)) return &format;
  }
  return nullptr;
}

Place place_of(const std::string& path, const Format* format) {
  Place place{.path = path, .format = format, .step = step_of(fs::path(path).filename().string())};
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (!error) {
    place.written_wall_s =
        std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch()).count();
  }
  return place;
}

// Describes what has the name of a checkpoint, and is of no known format.
void open_unrecognised(Checkpoint& to) {
  const auto problem = [&](std::string code, std::string text) {
    to.finished = false;
    to.problems.push_back({std::move(code), std::move(text)});
  };
  std::error_code error;
  if (fs::is_directory(to.path, error)) {
    if (names_in(to.path).empty()) return problem("empty", "it is an empty directory");
    return problem("format", "it is a directory without a checkpoint of a known format");
  }
  try {
    constexpr std::int64_t kLooked = 4096;
    const Source source(to.path);
    to.files.emplace_back();
    const std::string bytes = source.text(0, std::min(source.size_bytes(), kLooked));
    if (bytes.empty()) return problem("empty", "it has 0 bytes");
    const bool zeros = bytes.find_first_not_of('\0') == std::string::npos;
    problem("format", zeros ? "it begins with zeros" : "it does not begin as files of torch.save do");
  } catch (const Error& unreadable) { to.unread.push_back({"unreadable", unreadable.message()}); }
}
constexpr Format kUnrecognised{"unrecognised", "the name of a checkpoint, and no known format",
                               [](const std::string&) { return false; }, open_unrecognised};

}  // namespace

bool is_torch_save(const std::string& path) {
  const std::string beginning = beginning_of(path);
  return is_torch_zip(beginning) || is_legacy_torch(beginning);
}

void open_torch_save(Checkpoint& to) { add_torch_file(to, "", ""); }

void add_torch_file(Checkpoint& to, const std::string& name, const std::string& prefix) {
  constexpr std::size_t kMostFacts = 1000;
  const Source source(name.empty() ? to.path : to.path + "/" + name);
  const auto file_number = static_cast<std::uint32_t>(to.files.size());
  try {
    TorchFile file = read_torch_file(source.part(0), source.size_bytes());
    const auto item = static_cast<std::uint32_t>(to.items.size());
    for (SavedTensor& tensor : file.tensors) {
      Box box{.offsets = std::vector<std::int64_t>(tensor.shape.size()),
              .sizes = tensor.shape,
              .item = item,
              .saved = tensor.name};
      std::string full = prefix + tensor.name;
      if (full.ends_with('.')) full.pop_back();  // the file holds it alone
      to.tensors.push_back(
          {.name = std::move(full), .dtype = tensor.dtype, .shape = tensor.shape, .boxes = {std::move(box)}});
    }
    to.files.push_back(name);
    to.num_values += file.num_values;
    to.items.push_back({.file = file_number, .begin = 0, .size_bytes = source.size_bytes()});
    to.archives.emplace_back(prefix, item);
    for (Problem& unread : file.unread) to.unread.push_back(std::move(unread));
    for (auto& [key, text] : file.leaves) {
      if (to.facts.size() < kMostFacts) to.facts.emplace_back(prefix + key, std::move(text));
    }
  } catch (const Error& error) {
    if (error.blame() != Blame::user) throw;
    const bool unread = error.kind() == "data.unread";
    (unread ? to.unread : to.problems)
        .push_back({unread ? "pickle" : "zip", fmt::format("{} is {}", name.empty() ? "it" : name, error.message())});
  }
}

bool is_in_parts(const std::string& path) {
  return std::ranges::any_of(names_in(path),
                             [&](const std::string& name) { return part_format(path, name) != nullptr; });
}

void open_in_parts(Checkpoint& to) {
  for (const std::string& name : names_in(to.path)) {
    if (is_torch_save(to.path + "/" + name)) add_torch_file(to, name, name + ".");
    const Format* const format = part_format(to.path, name);
    if (format == nullptr) continue;
    Checkpoint part;
    part.path = to.path + "/" + name;
    format->open(part);
    const auto first_file = static_cast<std::uint32_t>(to.files.size()),
               first_item = static_cast<std::uint32_t>(to.items.size());
    to.finished = to.finished && part.finished;
    to.num_values += part.num_values;
    for (const std::string& file : part.files) to.files.push_back(name + "/" + file);
    for (Item& item : part.items) item.file += first_file, to.items.push_back(std::move(item));
    for (Tensor& tensor : part.tensors) {
      tensor.name = name + "." + tensor.name;
      for (Box& box : tensor.boxes) box.item += first_item;
      to.tensors.push_back(std::move(tensor));
    }
    for (auto& [object, item] : part.objects) to.objects.emplace_back(name + "." + object, item + first_item);
    for (auto& [prefix, item] : part.archives) to.archives.emplace_back(name + "." + prefix, item + first_item);
    for (auto& [fact, value] : part.facts) to.facts.emplace_back(name + "." + fact, std::move(value));
    const auto take = [&](std::vector<Problem>& from, std::vector<Problem>& into) {
      for (Problem& problem : from) into.push_back({std::move(problem.code), name + ": " + problem.text});
    };
    take(part.problems, to.problems);
    take(part.unread, to.unread);
    take(part.doubts, to.doubts);
  }
}

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats{
      {"megatron-torch-dist", "torch_dist of Megatron-LM: as torch-dcp, with metadata.json and common.pt", is_megatron,
       open_megatron},
      {"deepspeed", "ZeRO and universal checkpoints of DeepSpeed: *_model_states.pt, *_optim_states.pt, zero/",
       is_deepspeed, open_deepspeed},
      {"torch-dcp", "torch.distributed.checkpoint: .metadata and .distcp files", is_dcp, open_dcp},
      {"torch-save", "a file of torch.save", is_torch_save, open_torch_save},
      {"parts", "directories of these beside one another, as accelerate and NeMo write them", is_in_parts,
       open_in_parts},
  };
  return kFormats;
}

const Format* format_of(const std::string& path) {
  const auto row = std::ranges::find_if(formats(), [&](const Format& format) { return format.recognises(path); });
  return row == formats().end() ? nullptr : &*row;
}

Checkpoint open(const std::string& path) {
  const Format* const known = format_of(path);
  const Format* const format = known == nullptr ? &kUnrecognised : known;
  Checkpoint checkpoint;
  checkpoint.format = format->name;
  checkpoint.path = path;
  while (checkpoint.path.size() > 1 && checkpoint.path.ends_with('/')) checkpoint.path.pop_back();
  format->open(checkpoint);
  check_boxes(checkpoint);
  return checkpoint;
}

std::vector<Place> find_checkpoints(const std::string& path) {
  if (const Format* const format = format_of(path)) return {place_of(path, format)};
  std::error_code error;
  if (fs::is_regular_file(path, error) && !extension_of(path).empty()) return {place_of(path, &kUnrecognised)};
  std::vector<Place> places;
  std::vector<std::string> others;
  std::set<std::string, std::less<>> extensions, forms;
  for (const std::string& name : names_in(path)) {
    const std::string one = fs::path(path) / name;
    const Format* const format = format_of(one);
    if (format == nullptr) {
      others.push_back(name);
      continue;
    }
    places.push_back(place_of(one, format));
    if (format->open == open_torch_save) extensions.emplace(extension_of(name));
    forms.insert(form_of_name(name));
  }
  // One that is damaged from its first byte on is told by the names of the others.
  for (const std::string& name : others) {
    const std::string one = fs::path(path) / name;
    const std::string_view extension = extension_of(name);
    const std::string form = form_of_name(name);
    const bool has_extension =
        !extension.empty() && extension != ".bin" && extensions.contains(extension) && !fs::is_directory(one, error);
    if (has_extension || (!form.empty() && forms.contains(form) && !has_safetensors(one)))
      places.push_back(place_of(one, &kUnrecognised));
  }
  const bool by_step = std::ranges::all_of(places, [](const Place& place) { return place.step.has_value(); });
  std::ranges::sort(places, [&](const Place& a, const Place& b) {
    return by_step ? std::pair(*a.step, a.path) < std::pair(*b.step, b.path)
                   : std::pair(a.written_wall_s, a.path) < std::pair(b.written_wall_s, b.path);
  });
  return places;
}

void check_boxes(Checkpoint& checkpoint) {
  for (const Tensor& tensor : checkpoint.tensors) {
    const auto problem = [&](const std::string& why) {
      checkpoint.problems.push_back({"tiling", fmt::format("tensor '{}' of {} {}", plain_text(tensor.name, 200),
                                                           fmt::format("[{}]", fmt::join(tensor.shape, ", ")), why)});
    };
    const std::size_t dims = tensor.shape.size();
    const auto volume_of = [](const std::vector<std::int64_t>& sizes) {
      double volume = 1;
      for (const std::int64_t size : sizes) volume *= static_cast<double>(size);
      return volume;
    };
    double volume = 0;
    bool inside = true;
    for (const Box& box : tensor.boxes) {
      volume += volume_of(box.sizes);
      for (std::size_t d = 0; d < dims; ++d)
        inside = inside && box.sizes[d] <= tensor.shape[d] && box.offsets[d] <= tensor.shape[d] - box.sizes[d];
    }
    if (!inside) {
      problem("has parts outside of it");
      continue;
    }
    // Along the dim that most boxes differ in, only neighbours can overlap.
    std::size_t along = 0, most = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      std::vector<std::int64_t> offsets;
      for (const Box& box : tensor.boxes) offsets.push_back(box.offsets[d]);
      std::ranges::sort(offsets);
      const auto different = static_cast<std::size_t>(std::unique(offsets.begin(), offsets.end()) - offsets.begin());
      if (different > most) most = different, along = d;
    }
    std::vector<const Box*> order;
    for (const Box& box : tensor.boxes) order.push_back(&box);
    if (dims > 0) std::ranges::sort(order, {}, [&](const Box* box) { return box->offsets[along]; });
    bool overlap = dims == 0 && order.size() > 1;
    for (std::size_t i = 0; dims > 0 && i < order.size() && !overlap; ++i) {
      for (std::size_t j = i + 1;
           j < order.size() && order[j]->offsets[along] < order[i]->offsets[along] + order[i]->sizes[along]; ++j) {
        bool apart = false;
        for (std::size_t d = 0; d < dims; ++d)
          apart = apart || order[j]->offsets[d] >= order[i]->offsets[d] + order[i]->sizes[d] ||
                  order[i]->offsets[d] >= order[j]->offsets[d] + order[j]->sizes[d];
        overlap = overlap || !apart;
      }
    }
    if (overlap) {
      problem("has parts that overlap");
    } else if (volume != volume_of(tensor.shape)) {
      problem(fmt::format("has parts of {} elements in all", volume));
    }
  }
}

}  // namespace ms::foreign
