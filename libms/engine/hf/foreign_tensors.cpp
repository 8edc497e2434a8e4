#include "hf/foreign_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "foreign/checkpoint.h"
#include "foreign/read.h"
#include "hf/copies.h"
#include "hf/megatron_tensors.h"
#include "hf/names.h"

namespace ms::hf {
namespace {

// Puts the rows of heads in order, in place: torchtitan pairs element 2i with 2i + 1, transformers i with i + half.
void order_pairs(std::span<std::byte> rows, std::size_t row_bytes, std::size_t head_rows) {
  std::vector<std::byte> head(head_rows * row_bytes);
  MS_ASSERT(rows.size() % head.size() == 0, "{} bytes are no whole heads of {}", rows.size(), head.size());
  for (std::size_t begin = 0; begin < rows.size(); begin += head.size()) {
    const std::span<std::byte> place = rows.subspan(begin, head.size());
    std::ranges::copy(place, head.begin());
    for (std::size_t row = 0; row < head_rows; ++row) {
      const std::size_t half = head_rows / 2, from = 2 * (row % half) + row / half;
      std::ranges::copy(std::span(head).subspan(from * row_bytes, row_bytes),
                        place.begin() + static_cast<std::ptrdiff_t>(row * row_bytes));
    }
  }
}

// ZeRO 3 saves the model as tensors without elements.
bool is_empty(const foreign::Tensor& tensor) { return std::ranges::find(tensor.shape, 0) != tensor.shape.end(); }

// The embedding tells what stands before the names of Megatron-LM.
Copies megatron_copies(const foreign::Checkpoint& checkpoint) {
  Copies result;
  for (const foreign::Tensor& tensor : checkpoint.tensors) {
    if (!tensor.name.ends_with(kMegatronEmbedding) || !is_of_model(tensor.name) || is_empty(tensor)) continue;
    std::string before = tensor.name.substr(0, tensor.name.size() - kMegatronEmbedding.size());
    if (before.empty() || before.ends_with('.'))
      result.copies.push_back({.prefix = std::move(before), .tensors = 1, .has_embedding = true});
  }
  return result;
}

// Takes one copy of the weights.
class Taker {
 public:
  Taker(std::shared_ptr<const foreign::Checkpoint> checkpoint, std::span<const std::string> names, Naming naming,
        const nn::ModelConfig& model)
      : checkpoint_(std::move(checkpoint)), names_(names), naming_(naming), model_(model) {
    for (const Layout layout : {Layout::separate, Layout::joined}) {
      for (const Mapped& tensor : tensors_of(model, layout)) shapes_.emplace(tensor.name, tensor.shape);
    }
  }

  std::map<std::string, TensorView> take(const Copies& copies, std::size_t chosen) const {
    const std::string& prefix = copies.copies[chosen].prefix;
    const std::string_view end = suffix_of(naming_);
    std::map<std::string, TensorView> views;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const foreign::Tensor& tensor = checkpoint_->tensors[i];
      const bool is_other = copies.copy_of[i] && *copies.copy_of[i] != chosen;
      if (is_other || names_[i].empty() || !names_[i].starts_with(prefix) || !names_[i].ends_with(end) ||
          !is_of_model(tensor.name) || tensor.dtype == nullptr)
        continue;
      std::string name = names_[i].substr(prefix.size(), names_[i].size() - prefix.size() - end.size());
      if (naming_ == Naming::titan) name = from_titan(name);
      TensorView view = view_of(checkpoint_, tensor);
      if (naming_ == Naming::titan) pair_rows(tensor, name, view);
      if (!end.empty()) give_shape(name, view);
      if (!views.emplace(name, std::move(view)).second)
        throw user_error("hf.import", fmt::format("{} has '{}' twice behind '{}'", checkpoint_->path,
                                                  plain_text(name, 200), plain_text(prefix, 100)));
    }
    return views;
  }

 private:
  // Gives a flat tensor of a universal checkpoint the shape of the model's.
  void give_shape(const std::string& name, TensorView& view) const {
    const auto shape = shapes_.find(name);
    if (shape == shapes_.end()) return;
    std::int64_t elements = 1;
    for (const std::int64_t size : shape->second) elements *= size;
    if (view.shape == std::vector{elements}) view.shape = shape->second;
  }

  void pair_rows(const foreign::Tensor& tensor, const std::string& name, TensorView& view) const {
    const bool turned =
        tensor.shape.size() == 2 && (name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight"));
    if (!turned || tensor.shape[0] == 0 || tensor.shape[0] % model_.head_dim() != 0) return;
    const std::size_t row_bytes = view.size_bytes / static_cast<std::size_t>(tensor.shape[0]);
    view.read_other = [read = view.read_other, row_bytes, head_rows = static_cast<std::size_t>(model_.head_dim())](
                          std::size_t at, std::span<std::byte> out) {
      read(at, out);
      order_pairs(out, row_bytes, head_rows);
    };
  }

  const std::shared_ptr<const foreign::Checkpoint> checkpoint_;
  const std::span<const std::string> names_;  // of its tensors
  const Naming naming_;
  const nn::ModelConfig& model_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
};

// All copies under the names of one program.
struct CopiesOf {
  Naming naming;
  Copies found;
};

bool is_universal(Naming naming) { return naming == Naming::universal || naming == Naming::universal_flat; }

// Returns the naming to import, and the number of its copy. Complete masters in float32 of a universal checkpoint come
// before the weights in bfloat16 beside them. A naming without a complete copy gives way to one that has, else to one
// that has the embedding: layers of Megatron-LM have some names of transformers.
std::pair<const CopiesOf*, std::size_t> choose(const std::vector<CopiesOf>& all,
                                               const std::optional<std::string>& prefix, const std::string& path) {
  if (prefix) {
    std::vector<std::pair<const CopiesOf*, std::size_t>> places;
    for (const CopiesOf& of : all) {
      for (std::size_t i = 0; i < of.found.copies.size(); ++i) places.emplace_back(&of, i);
    }
    const auto copy_at = [](const auto& place) -> const Copy& { return place.first->found.copies[place.second]; };
    std::ranges::stable_sort(places, std::ranges::greater(), [&](const auto& place) {
      return std::pair(copy_at(place).is_complete, copy_at(place).has_embedding);
    });
    std::vector<Copy> copies;
    for (const auto& place : places) copies.push_back(copy_at(place));
    return places[choose_copy(copies, prefix, path)];
  }
  const auto has_copy = [](const CopiesOf& of, bool Copy::*property) {
    return std::ranges::any_of(of.found.copies, property);
  };
  const auto first = [&](const auto& is_wanted) {
    const auto found = std::ranges::find_if(all, is_wanted);
    return found == all.end() ? nullptr : &*found;
  };
  const CopiesOf* of =
      first([&](const CopiesOf& one) { return is_universal(one.naming) && has_copy(one, &Copy::is_complete); });
  if (of == nullptr) of = first([&](const CopiesOf& one) { return has_copy(one, &Copy::is_complete); });
  if (of == nullptr) of = first([&](const CopiesOf& one) { return has_copy(one, &Copy::has_embedding); });
  if (of == nullptr) of = &all.front();
  return {of, choose_copy(of->found.copies, prefix, path)};
}

// The copies that might have been meant: all of the same naming, and the complete ones of the others.
std::vector<Copy> others_than(const CopiesOf& chosen_of, std::size_t chosen, const std::vector<CopiesOf>& all) {
  std::vector<Copy> others;
  for (const CopiesOf& of : all) {
    for (std::size_t i = 0; i < of.found.copies.size(); ++i) {
      const bool is_same = &of == &chosen_of;
      if (is_same ? i != chosen : of.found.copies[i].is_complete) others.push_back(of.found.copies[i]);
    }
  }
  return others;
}

}  // namespace

bool is_of_model(const std::string& name) {
  constexpr std::array<std::string_view, 14> kOthers{
      "optimizer",    "optimizers",  "optimizer_state", "optimizer_states", "optimizer_state_dict",
      "optim",        "optim_state", "lr_scheduler",    "train_state",      "dataloader",
      "optim_states", "rng_state",   "common",          "chained"};
  std::string_view first = std::string_view(name).substr(0, name.find_first_of("./"));
  const std::size_t number = first.find_last_not_of("0123456789") + 1;  // "optimizer_0", "chained_1"
  if (number > 0 && number < first.size()) first = first.substr(0, first[number - 1] == '_' ? number - 1 : number);
  return std::ranges::find(kOthers, first) == kOthers.end();
}

TensorView view_of(const std::shared_ptr<const foreign::Checkpoint>& checkpoint, const foreign::Tensor& tensor) {
  const foreign::TensorReader sized(*checkpoint, tensor);  // refuses one that is damaged
  const std::string_view type = tensor.dtype->safetensors;
  return {.dtype = type == "F32"    ? Dtype::f32
                   : type == "BF16" ? Dtype::bf16
                   : type == "F16"  ? Dtype::f16
                                    : Dtype::other,
          .dtype_name = std::string(tensor.dtype->name),
          .shape = tensor.shape,
          .file = nullptr,
          .size_bytes = static_cast<std::size_t>(sized.size_bytes()),
          .read_other = [checkpoint, &tensor](std::size_t at, std::span<std::byte> out) {
            foreign::TensorReader(*checkpoint, tensor).read(static_cast<std::int64_t>(at), out);
          }};
}

bool is_foreign_checkpoint(const std::string& path) { return foreign::format_of(path) != nullptr; }

std::map<std::string, TensorView> foreign_tensors(const std::string& path, const nn::ModelConfig& model,
                                                  const ForeignOptions& options) {
  const auto checkpoint = std::make_shared<const foreign::Checkpoint>(foreign::open(path));
  if (!checkpoint->finished)
    throw Error("ckpt.incomplete", Blame::storage, fmt::format("{}: {}", path, checkpoint->problems.front().text));
  std::vector<std::string> names;
  for (const foreign::Tensor& tensor : checkpoint->tensors)
    names.push_back(is_of_model(tensor.name) && !is_empty(tensor) ? without_wrappers(tensor.name) : "");
  std::vector<CopiesOf> all;
  for (const Naming naming :
       {Naming::transformers, Naming::universal, Naming::universal_flat, Naming::megatron, Naming::titan}) {
    if (!model.gated() && (naming == Naming::megatron || naming == Naming::titan)) continue;
    CopiesOf of{.naming = naming,
                .found = naming == Naming::megatron ? megatron_copies(*checkpoint) : find_copies(names, naming, model)};
    if (!of.found.copies.empty()) all.push_back(std::move(of));
  }
  if (!all.empty()) {
    const auto [of, chosen] = choose(all, options.prefix, path);
    const Copy& copy = of->found.copies[chosen];
    if (const std::vector<Copy> others = others_than(*of, chosen, all); !others.empty() && options.say)
      options.say(fmt::format("imports the weights behind '{}', not those behind {}", plain_text(copy.prefix, 100),
                              list_of(others)));
    return of->naming == Naming::megatron ? megatron_tensors(checkpoint, copy.prefix, model)
                                          : Taker(checkpoint, names, of->naming, model).take(of->found, chosen);
  }
  throw user_error("hf.import",
                   fmt::format("{} has no weights under the names of transformers{}", path,
                               !model.gated() ? "" : ", torchtitan or Megatron-LM"),
                   !checkpoint->unread.empty() ? "not read: " + plain_text(checkpoint->unread.front().text, 1000)
                   : checkpoint->format == "deepspeed"
                       ? "ZeRO 3 keeps parts of parameters: DeepSpeed's ds_to_universal or zero_to_fp32.py joins them"
                       : "'ms-ckpt show --params' lists its tensors");
}

}  // namespace ms::hf
