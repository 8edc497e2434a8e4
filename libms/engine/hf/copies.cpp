#include "hf/copies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "hf/names.h"

namespace ms::hf {
namespace {

constexpr std::size_t kLeastTensors = 2, kMostShown = 8;
constexpr std::string_view kTitanEmbedding = "tok_embeddings.weight";

// torchtitan's names of a layer's tensors, and those of transformers.
struct Renamed {
  std::string_view titan, hf;
};
constexpr std::array kOfLayer{
    Renamed{"attention.wq.", "self_attn.q_proj."},     Renamed{"attention.wk.", "self_attn.k_proj."},
    Renamed{"attention.wv.", "self_attn.v_proj."},     Renamed{"attention.wo.", "self_attn.o_proj."},
    Renamed{"feed_forward.w1.", "mlp.gate_proj."},     Renamed{"feed_forward.w2.", "mlp.down_proj."},
    Renamed{"feed_forward.w3.", "mlp.up_proj."},       Renamed{"attention_norm.", "input_layernorm."},
    Renamed{"ffn_norm.", "post_attention_layernorm."},
};

// The names of a model's tensors with its head, in both layouts of a layer.
struct Known {
  explicit Known(const nn::ModelConfig& model)
      : prefix(prefix_of(model)),
        embedding(embedding_name(model)),
        head(head_name(model)),
        is_tied(model.tied_embeddings) {
    const std::array layouts{Layout::separate, Layout::joined};
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      for (const Mapped& tensor : tensors_of(model, layouts[i])) of_layout[i].insert(tensor.name);
      all.insert(of_layout[i].begin(), of_layout[i].end());
    }
    all.insert(head);
    for (const std::string& name : all) longest = std::max(longest, name.size());
  }
  bool has(const std::set<std::string>& found, const std::string& name) const {
    return found.contains(name) || (is_tied && name == embedding && found.contains(head));
  }
  bool is_complete(const std::set<std::string>& found) const {
    return std::ranges::any_of(of_layout, [&](const std::set<std::string>& wanted) {
      return std::ranges::all_of(wanted, [&](const std::string& name) { return has(found, name); });
    });
  }
  // The tensor that this is the name of, in a model with its head or without; nullopt: none.
  std::optional<std::string> name_of(const std::string& name, Naming naming) const {
    if (naming == Naming::titan) {
      std::string renamed = from_titan(name);
      const bool is_other = renamed == "model." + name && name != "norm.weight";  // as transformers names it
      return !is_other && all.contains(renamed) ? std::optional(std::move(renamed)) : std::nullopt;
    }
    if (all.contains(name)) return name;
    return naming == Naming::transformers && all.contains(prefix + name) ? std::optional(prefix + name) : std::nullopt;
  }

  std::string prefix, embedding, head;
  bool is_tied = false;
  std::array<std::set<std::string>, 2> of_layout;
  std::set<std::string> all;
  std::size_t longest = 0;  // of a name, also of torchtitan's, which leaves out "model."
};

// Whether all parts of the prefix are what programs call the weights that train.
bool is_well_known(std::string_view prefix) {
  constexpr std::array<std::string_view, 6> kWords{"app",    "model",      "model_state_dict",
                                                   "module", "state_dict", "weights"};
  while (!prefix.empty()) {
    const std::size_t end = prefix.find('.');
    if (std::ranges::find(kWords, prefix.substr(0, end)) == kWords.end()) return false;
    prefix.remove_prefix(end == std::string_view::npos ? prefix.size() : end + 1);
  }
  return true;
}

std::string shown_prefix(const Copy& copy) { return fmt::format("'{}'", plain_text(copy.prefix, 100)); }

// Returns the innermost copy whose prefix the name begins with. `outer`: by copy, the innermost one around it.
std::optional<std::size_t> copy_around(std::string_view name, const std::vector<Copy>& copies,
                                       std::span<const std::optional<std::size_t>> outer) {
  const auto behind =
      std::ranges::upper_bound(copies, name, {}, [](const Copy& copy) -> std::string_view { return copy.prefix; });
  if (behind == copies.begin()) return std::nullopt;
  std::optional<std::size_t> copy = static_cast<std::size_t>(behind - copies.begin()) - 1;
  while (copy && !name.starts_with(copies[*copy].prefix)) copy = outer[*copy];
  return copy;
}

}  // namespace

std::string list_of(const std::vector<Copy>& copies) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(copies.size(), kMostShown); ++i)
    texts.push_back(fmt::format("{} ({}{})", shown_prefix(copies[i]), plural(copies[i].tensors, "tensor"),
                                copies[i].is_complete ? "" : ", incomplete"));
  if (copies.size() > kMostShown) texts.push_back(fmt::format("{} more", copies.size() - kMostShown));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string_view suffix_of(Naming naming) {
  return naming == Naming::universal ? ".fp32.param" : naming == Naming::universal_flat ? ".fp32" : "";
}

std::string from_titan(const std::string& name) {
  if (name == kTitanEmbedding) return "model.embed_tokens.weight";
  if (name == "output.weight") return "lm_head.weight";
  for (const Renamed& row : kOfLayer) {
    const std::size_t at = name.find(row.titan);
    if (at == std::string::npos) continue;
    return fmt::format("model.{}{}{}", name.substr(0, at), row.hf, name.substr(at + row.titan.size()));
  }
  return "model." + name;
}

std::string without_wrappers(const std::string& name) {
  constexpr std::array<std::string_view, 3> kWrappers{"_checkpoint_wrapped_module", "_fsdp_wrapped_module",
                                                      "_orig_mod"};
  std::string result;
  std::string_view rest = name;
  for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    if (std::ranges::find(kWrappers, rest.substr(0, dot)) == kWrappers.end()) result += rest.substr(0, dot + 1);
    rest.remove_prefix(dot + 1);
  }
  return result += rest;
}

Copies find_copies(std::span<const std::string> names, Naming naming, const nn::ModelConfig& model) {
  const Known known(model);
  const std::string_view end = suffix_of(naming);
  std::map<std::string, std::set<std::string>> found;  // by prefix
  std::vector<std::optional<std::string>> prefix_of_name(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].ends_with(end)) continue;
    const std::string name = names[i].substr(0, names[i].size() - end.size());
    std::size_t at = 0;
    if (name.size() > known.longest) {
      const std::size_t dot = name.find('.', name.size() - known.longest - 1);
      at = dot == std::string::npos ? name.size() : dot + 1;
    }
    while (at < name.size()) {  // the longest name that is known
      if (std::optional<std::string> one = known.name_of(name.substr(at), naming)) {
        prefix_of_name[i] = name.substr(0, at);
        found[name.substr(0, at)].insert(*std::move(one));
        break;
      }
      const std::size_t dot = name.find('.', at);
      at = dot == std::string::npos ? name.size() : dot + 1;
    }
  }
  Copies result;
  std::map<std::string, std::size_t> numbers;
  for (const auto& [prefix, of_copy] : found) {
    if (of_copy.size() < kLeastTensors) continue;
    numbers.emplace(prefix, result.copies.size());
    result.copies.push_back({.prefix = prefix,
                             .tensors = of_copy.size(),
                             .is_complete = known.is_complete(of_copy),
                             .has_embedding = known.has(of_copy, known.embedding)});
  }
  std::vector<std::optional<std::size_t>> outer;
  for (std::size_t c = 0; c < result.copies.size(); ++c) {  // sorted: what is around a prefix comes before it
    std::optional<std::size_t> around = c == 0 ? std::nullopt : std::optional(c - 1);
    while (around && !result.copies[c].prefix.starts_with(result.copies[*around].prefix)) around = outer[*around];
    outer.push_back(around);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto number = prefix_of_name[i] ? numbers.find(*prefix_of_name[i]) : numbers.end();
    result.copy_of.push_back(number != numbers.end() ? number->second  // a buffer is of the innermost
                                                     : copy_around(names[i], result.copies, outer));
  }
  return result;
}

std::size_t choose_copy(const std::vector<Copy>& copies, const std::optional<std::string>& prefix,
                        const std::string& path) {
  if (prefix) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (copies[i].prefix == *prefix || copies[i].prefix == *prefix + ".") return i;
    }
    throw user_error("hf.import", fmt::format("{} has no weights of the model behind '{}'", path, *prefix),
                     fmt::format("it has weights behind {}", list_of(copies)));
  }
  if (copies.size() == 1) return 0;
  std::optional<std::size_t> chosen, whole;
  std::size_t well_known = 0, complete = 0;
  bool lacks_some = false;  // of what trains
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].is_complete) ++complete, whole = i;
    if (!is_well_known(copies[i].prefix)) continue;
    ++well_known, chosen = i;
    lacks_some = lacks_some || !copies[i].is_complete;
  }
  if (well_known == 1 && copies[*chosen].is_complete) return *chosen;
  if (complete == 1 && !lacks_some) return *whole;  // the others have names like those of the model: a vision tower
  throw user_error("hf.import", fmt::format("{} has several copies of the weights, behind {}", path, list_of(copies)),
                   "--prefix selects one");
}

}  // namespace ms::hf
