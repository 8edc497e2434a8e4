// Implements the importer of convert.h: from a Hugging Face directory to a checkpoint of ours.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hf/convert.h"
#include "hf/foreign_tensors.h"
#include "hf/json_value.h"
#include "hf/model_json.h"
#include "hf/names.h"
#include "hf/problems.h"
#include "hf/safetensors.h"

namespace ms::hf {
namespace {

using tensor::DType;

constexpr std::int64_t kFileBytes = std::int64_t{1} << 30;  // of a data file: it is in memory while it is written
constexpr std::size_t kCompareBytes = std::size_t{1} << 20;

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// The tensors by the names of a model with a head, whichever way it was saved. A tied matrix may have the head's name.
std::map<std::string, TensorView> with_prefix(std::map<std::string, TensorView> named, const nn::ModelConfig& model) {
  const std::string prefix = prefix_of(model), embedding = embedding_name(model), head_is = head_name(model);
  const bool only_head = model.tied_embeddings && named.contains(head_is) && !named.contains(embedding);
  const bool has_prefix =
      std::ranges::any_of(named, [&](const auto& tensor) { return tensor.first.starts_with(prefix); });
  if (!has_prefix && (only_head || named.contains(embedding.substr(prefix.size())))) {
    std::map<std::string, TensorView> prefixed;
    for (const auto& [name, view] : named) prefixed.emplace(name == head_is ? name : prefix + name, view);
    named = std::move(prefixed);
  }
  if (model.tied_embeddings && named.contains(head_is) && !named.contains(embedding)) {
    auto head = named.extract(head_is);
    head.key() = embedding;
    named.insert(std::move(head));
  }
  return named;
}

bool have_same_bytes(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  std::vector<std::byte> of_a(std::min(a.size_bytes, kCompareBytes)), of_b(of_a.size());
  for (std::size_t at = 0; at < a.size_bytes; at += of_a.size()) {
    const std::size_t n = std::min(of_a.size(), a.size_bytes - at);
    a.read(at, std::span(of_a).first(n));
    b.read(at, std::span(of_b).first(n));
    if (!std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(n), of_b.begin())) return false;
  }
  return true;
}

// Pairs every tensor of the model with its data: none missing, none left over.
std::vector<const TensorView*> match(const std::map<std::string, TensorView>& found, const std::vector<Mapped>& tensors,
                                     const nn::ModelConfig& model, const std::string& hf_dir) {
  Problems problems("hf.import", fmt::format("the tensors in '{}' are not those of its config.json", hf_dir));
  const std::string head = head_name(model);
  std::vector<const TensorView*> matched;
  std::set<std::string> known = buffers_of(model);
  for (const Mapped& tensor : tensors) {
    known.insert(tensor.name);
    const auto it = found.find(tensor.name);
    if (it == found.end()) {
      problems.add(fmt::format("'{}' is missing", tensor.name));
      if (tensor.name == head && found.contains(embedding_name(model)))
        problems.set_hint("tie_word_embeddings = true in config.json says that the embedding is the output head, too");
      continue;
    }
    const TensorView& view = it->second;
    matched.push_back(&view);
    if (view.shape != tensor.shape) {
      problems.add(
          fmt::format("'{}' is {}, expected {}", tensor.name, shape_text(view.shape), shape_text(tensor.shape)));
    }
    if (view.dtype == Dtype::other) {
      problems.add(fmt::format("'{}' is {}, expected F32, BF16 or F16", tensor.name, view.dtype_name));
    }
  }
  for (const auto& [name, view] : found) {
    if (known.contains(name)) continue;
    if (name == head) {  // tied, and written out all the same
      const auto embedding = found.find(embedding_name(model));
      if (embedding != found.end() && have_same_bytes(view, embedding->second)) continue;
      problems.add(fmt::format("'{}' differs from '{}', but tie_word_embeddings is true", name, embedding_name(model)));
      problems.set_hint("tie_word_embeddings = false in config.json says that the model has an output head of its own");
    } else {
      problems.add(fmt::format("'{}' is not part of the model", plain_text(name, 200)));
    }
  }
  problems.throw_if_any();
  return matched;
}

// Part `index` of a tensor, in the type of the checkpoint.
void fill_part(const TensorView& view, const Mapped& tensor, std::size_t index, DType dtype, std::span<std::byte> to) {
  const std::int64_t element = view.dtype == Dtype::f32 ? 4 : 2;
  const Part& part = tensor.parts[index];
  std::int64_t before = 0;
  for (std::size_t i = 0; i < index; ++i) before += tensor.transposed ? tensor.parts[i].rows : tensor.parts[i].size();
  const auto begin = static_cast<std::size_t>(before * element), size = static_cast<std::size_t>(part.size() * element);
  std::vector<std::byte> turned(size);
  if (!tensor.transposed) {
    // Parts have one size where they come in several blocks.
    const std::size_t parts = tensor.parts.size(), block = size / static_cast<std::size_t>(tensor.blocks);
    for (std::size_t b = 0; b < static_cast<std::size_t>(tensor.blocks); ++b) {
      const std::size_t at = tensor.blocks == 1 ? begin : (b * parts + index) * block;
      view.read(at, std::span(turned).subspan(b * block, block));
    }
    convert(view.dtype, turned, dtype, to);
    return;
  }
  // There it is [in, all parts' out]: our rows are columns.
  const std::vector<std::byte> whole = view.read();
  transpose(whole.data() + begin, tensor.shape[1], part.cols, part.rows, element, turned.data());
  convert(view.dtype, turned, dtype, to);
}

// Refuses weights that are NaN or infinite: a conversion or a download went wrong, and training would only diverge.
void check_finite(const Mapped& tensor, DType dtype, std::span<const std::byte> values) {
  const auto any = [&]<class Bits>(Bits exponent) {
    for (std::size_t i = 0; i + sizeof(Bits) <= values.size(); i += sizeof(Bits)) {
      Bits bits;
      std::memcpy(&bits, values.data() + i, sizeof bits);
      if ((bits & exponent) == exponent) return true;
    }
    return false;
  };
  if (dtype == DType::bf16 ? any(std::uint16_t{0x7f80}) : any(std::uint32_t{0x7f800000}))
    throw user_error("hf.import", fmt::format("'{}' holds NaN or infinite weights", tensor.name),
                     "the model was damaged in conversion or download");
}

struct Origin {  // of a piece
  std::size_t tensor = 0, part = 0;
};

}  // namespace

nn::ModelConfig read_model(const std::string& path) {
  std::error_code error;
  const std::string file = std::filesystem::is_regular_file(path, error) ? path : path + "/config.json";
  if (!std::filesystem::exists(file, error)) {
    throw user_error(
        "hf.model", fmt::format("'{}' has no config.json", path),
        "name the directory of a Hugging Face model, with config.json and the weights as safetensors; for a "
        "checkpoint of another program, give --config");
  }
  return parse_config(read_text(file), file);
}

std::string import_model(const std::string& hf_dir, const nn::ModelConfig& model, ckpt::Manifest manifest,
                         const std::string& dir, const std::function<void(std::int64_t)>& progress,
                         const ForeignOptions& options) {
  const bool is_foreign = is_foreign_checkpoint(hf_dir);
  if (!is_foreign && options.prefix)
    throw user_error("hf.import",
                     fmt::format("'{}' is not a checkpoint of PyTorch: --prefix selects among its names", hf_dir));
  const std::map<std::string, TensorView> found =
      with_prefix(is_foreign ? foreign_tensors(hf_dir, model, options) : TensorSet(hf_dir).tensors(), model);
  const bool joined = std::ranges::any_of(found, [](const auto& each) { return each.first.ends_with(kJoinedName); });
  const std::vector<Mapped> tensors = tensors_of(model, joined ? Layout::joined : Layout::separate);
  const std::vector<const TensorView*> views = match(found, tensors, model, hf_dir);
  bool all_bf16 = true;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    all_bf16 = all_bf16 && (tensors[t].is_f32 || views[t]->dtype == Dtype::bf16);
  const auto dtype_of = [&](const Mapped& tensor) { return all_bf16 && !tensor.is_f32 ? DType::bf16 : DType::f32; };

  std::vector<ckpt::OfflineFile> files;
  std::vector<std::vector<Origin>> origins;
  std::int64_t file_bytes = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::size_t p = 0; p < tensors[t].parts.size(); ++p) {
      const Part& part = tensors[t].parts[p];
      const ckpt::Piece piece{ckpt::State::weight, dtype_of(tensors[t]), ckpt::whole(part.name, part.rows, part.cols)};
      if (files.empty() || file_bytes + piece.size_bytes() > kFileBytes) {
        files.emplace_back();
        origins.emplace_back();
        file_bytes = 0;
      }
      file_bytes += piece.size_bytes();
      files.back().pieces.push_back(piece);
      origins.back().push_back({t, p});
    }
  }
  for (std::size_t f = 0; f < files.size(); ++f) {
    files[f].fill = [&, f](std::size_t piece, std::span<std::byte> to) {
      const Origin& origin = origins[f][piece];
      const Mapped& tensor = tensors[origin.tensor];
      fill_part(*views[origin.tensor], tensor, origin.part, dtype_of(tensor), to);
      check_finite(tensor, dtype_of(tensor), to);
    };
  }

  manifest.step = 0;
  manifest.dp = manifest.pp = manifest.tp = manifest.chunks = 1;
  manifest.zero = 0;
  manifest.dtype = all_bf16 ? "bf16" : "fp32";
  manifest.data.samples = 0;
  manifest.has_optimizer = false;
  manifest.files.clear();
  return ckpt::write_checkpoint(dir, std::move(manifest), files, progress);
}

}  // namespace ms::hf
