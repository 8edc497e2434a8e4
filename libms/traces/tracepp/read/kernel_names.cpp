#include "tracepp/read/kernel_names.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

namespace ms::tracepp {
namespace {

constexpr std::size_t kNameRead = 4096;  // bytes of a name; they may go on for kilobytes

constexpr bool is_name_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_name_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_name_word(char c) { return is_name_letter(c) || is_name_digit(c) || c == '_'; }

bool has_part(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// Returns whether the name has the shape of an instruction between letters: "_s16816gemm_", "h884cudnn".
bool has_instruction(std::string_view name, std::initializer_list<std::string_view> shapes) {
  return std::ranges::any_of(shapes, [&](std::string_view shape) {
    for (std::size_t at = name.find(shape); at != std::string_view::npos; at = name.find(shape, at + 1)) {
      const std::size_t end = at + shape.size();
      if (at > 0 && is_name_letter(name[at - 1]) && (end == name.size() || !is_name_digit(name[end]))) return true;
    }
    return false;
  });
}

// Returns whether one of these parts is followed by a digit: "_MI16x16x1" of Tensile.
bool has_numbered(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) {
    for (std::size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
      if (at + part.size() < name.size() && is_name_digit(name[at + part.size()])) return true;
    }
    return false;
  });
}

// Returns the name without "void " and the list of arguments.
std::string_view without_arguments(std::string_view name) {
  name = name.substr(0, kNameRead);
  if (name.starts_with("void ")) name.remove_prefix(5);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<') ++depth;
    if (c == '>' && depth > 0) --depth;
    if (c == '(' && depth == 0 && !name.substr(i).starts_with("(anonymous")) return name.substr(0, i);
  }
  return name;
}

// Returns whether a word of a template names an operation: "AddFunctor", "direct_copy_kernel_cuda", "MeanOps".
bool names_operation(std::string_view word) {
  static constexpr std::array<std::string_view, 9> kGeneral{"BinaryFunctor",
                                                            "AUnaryFunctor",
                                                            "BUnaryFunctor",
                                                            "gpu_kernel_impl",
                                                            "gpu_kernel_impl_nocast",
                                                            "CompareEqFunctor",
                                                            "TensorListScalarListMetadata",
                                                            "multi_tensor_apply_kernel",
                                                            "ReduceOp"};
  if (std::ranges::find(kGeneral, word) != kGeneral.end()) return false;
  if (word.ends_with("_t")) return false;
  return has_part(word, {"unctor", "_kernel", "Kernel", "launch_", "gemm", "Flash", "flash", "Attn"}) ||
         word.ends_with("Ops") || word.ends_with("Op");
}

}  // namespace

TensorCores tensor_cores_of(std::string_view kernel) {
  const std::string_view name = without_arguments(kernel);
  // "_tensor16x8x16_" of xmma; "fmha_cutlassF_f16" and flash attention exist for tensor cores only, the former in f32
  // for both.
  if (has_part(name, {"tensorop", "tensor_op", "wgmma", "gmma", "wmma", "mfma", "hmma", "imma", "tcgen05", "nvjet"}) ||
      has_instruction(name, {"884", "1688", "16816", "8816", "16832", "16864"}) ||
      has_numbered(name, {"_MI", "_tensor"}) ||
      has_part(name, {"flash_fwd", "flash_bwd", "FlashAttnFwd", "FlashAttnBwd", "fmha_cutlassF_f16",
                      "fmha_cutlassF_bf16", "fmha_cutlassB_f16", "fmha_cutlassB_bf16"})) {
    return TensorCores::used;
  }
  if (has_part(name, {"simt", "_ffma_", "_dfma_", "sgemm", "dgemm", "gemv", "elementwise_kernel", "reduce_kernel",
                      "softmax", "layer_norm", "multi_tensor_apply"})) {
    return TensorCores::not_used;
  }
  return TensorCores::unknown;
}

std::string short_kernel_name(std::string_view kernel) {
  constexpr std::size_t kMostOperations = 2;
  const std::string_view name = without_arguments(kernel);
  const std::size_t open = name.find('<');
  std::string_view base = name.substr(0, open);
  if (const std::size_t at = base.rfind("::"); at != std::string_view::npos) base.remove_prefix(at + 2);
  std::string shown(base.empty() ? name.substr(0, open) : base);
  if (open == std::string_view::npos) return shown;
  std::vector<std::string_view> operations;
  for (std::size_t at = open; at < name.size() && operations.size() < kMostOperations;) {
    if (!is_name_word(name[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < name.size() && is_name_word(name[at])) ++at;
    const std::string_view word = name.substr(begin, at - begin);
    if (names_operation(word) && word != base && std::ranges::find(operations, word) == operations.end())
      operations.push_back(word);
  }
  if (operations.empty()) return shown + "<...>";
  shown += '<';
  for (std::size_t i = 0; i < operations.size(); ++i) (shown += i == 0 ? "" : ", ") += operations[i];
  return shown + '>';
}

}  // namespace ms::tracepp
