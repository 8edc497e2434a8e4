#include "tracepp/read/op_shapes.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/number.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

using Dims = std::vector<std::int64_t>;
constexpr std::size_t kMostParts = 64, kMostDims = 8;
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

enum class Formula : std::uint8_t {
  gemm,                  // a x b, the last two dims of each; a third one of both is a batch
  linear,                // a x transposed b
  convolution,           // input, weight, bias, stride, padding, dilation, transposed, output padding, groups
  convolution_backward,  // gradient, input, weight, bias sizes, ..., transposed at 7, output mask at 10
  attention,             // query, key, value
  attention_backward,    // gradient, query, key, value
  elementwise,           // the output is as large as the largest input
  copy                   // the output is the first input
};

struct FormulaRow {
  std::string_view op;  // behind "aten::"
  Formula formula;
  std::uint8_t first = 0;   // the first operand's place among the arguments
  std::uint8_t causal = 0;  // the place of is_causal
};

constexpr std::array<FormulaRow, 54> kFormulas{{
    {"mm", Formula::gemm},
    {"addmm", Formula::gemm, 1},
    {"addmm_", Formula::gemm, 1},
    {"_addmm_activation", Formula::gemm, 1},
    {"bmm", Formula::gemm},
    {"baddbmm", Formula::gemm, 1},
    {"baddbmm_", Formula::gemm, 1},
    {"addbmm", Formula::gemm, 1},
    {"_scaled_mm", Formula::gemm},
    {"_int_mm", Formula::gemm},
    {"_grouped_mm", Formula::gemm},
    {"_scaled_grouped_mm", Formula::gemm},
    {"linear", Formula::linear},
    {"mkldnn_linear", Formula::linear},
    {"convolution", Formula::convolution},
    {"convolution_backward", Formula::convolution_backward},
    {"_scaled_dot_product_flash_attention", Formula::attention, 0, 4},
    {"_scaled_dot_product_efficient_attention", Formula::attention, 0, 6},
    {"_scaled_dot_product_cudnn_attention", Formula::attention, 0, 6},
    {"_scaled_dot_product_flash_attention_for_cpu", Formula::attention, 0, 4},
    {"_scaled_dot_product_flash_attention_backward", Formula::attention_backward, 1, 11},
    {"_scaled_dot_product_efficient_attention_backward", Formula::attention_backward, 1, 11},
    {"_scaled_dot_product_cudnn_attention_backward", Formula::attention_backward, 1, 14},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", Formula::attention_backward, 1, 7},
    {"copy_", Formula::copy},
    {"add", Formula::elementwise},
    {"add_", Formula::elementwise},
    {"sub", Formula::elementwise},
    {"sub_", Formula::elementwise},
    {"mul", Formula::elementwise},
    {"mul_", Formula::elementwise},
    {"div", Formula::elementwise},
    {"div_", Formula::elementwise},
    {"neg", Formula::elementwise},
    {"pow", Formula::elementwise},
    {"sqrt", Formula::elementwise},
    {"rsqrt", Formula::elementwise},
    {"exp", Formula::elementwise},
    {"addcmul_", Formula::elementwise},
    {"addcdiv_", Formula::elementwise},
    {"lerp_", Formula::elementwise},
    {"relu", Formula::elementwise},
    {"relu_", Formula::elementwise},
    {"clamp_min", Formula::elementwise},
    {"clamp_min_", Formula::elementwise},
    {"threshold_backward", Formula::elementwise},
    {"gelu", Formula::elementwise},
    {"gelu_backward", Formula::elementwise},
    {"silu", Formula::elementwise},
    {"silu_backward", Formula::elementwise},
    {"sigmoid", Formula::elementwise},
    {"tanh", Formula::elementwise},
    {"tanh_backward", Formula::elementwise},
    {"_softmax", Formula::elementwise},
}};

const FormulaRow* formula_of(std::string_view op) {
  constexpr std::string_view kPrefix = "aten::";
  if (!op.starts_with(kPrefix)) return nullptr;
  const auto* const found = std::ranges::find(kFormulas, op.substr(kPrefix.size()), &FormulaRow::op);
  return found == kFormulas.end() ? nullptr : found;
}

// Returns the parts of a JSON array, or of a list inside a string of one: "[[2, 3], []]" -> "[2, 3]", "[]".
std::vector<std::string_view> list_parts(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty() && list.front() != '[') list.remove_prefix(1);
  if (list.empty()) return parts;
  std::size_t depth = 0, begin = 1;
  bool quoted = false;
  const auto take = [&](std::size_t end) {
    std::string_view part = list.substr(begin, end - begin);
    constexpr std::string_view kAround = " \n\r\t\"";
    while (!part.empty() && kAround.find(part.front()) != std::string_view::npos) part.remove_prefix(1);
    while (!part.empty() && kAround.find(part.back()) != std::string_view::npos) part.remove_suffix(1);
    parts.push_back(part);
    begin = end + 1;
  };
  for (std::size_t i = 0; i < list.size() && parts.size() < kMostParts; ++i) {
    const char c = list[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[') ++depth;
    if (c == ',' && depth == 1) take(i);
    if (c == ']' && --depth == 0) {
      if (!parts.empty() || !list.substr(begin, i - begin).empty()) take(i);
      break;
    }
  }
  return parts;
}

// Returns the numbers of "[2, 3]"; none if it is anything else, as a list of tensors is.
std::optional<Dims> dims_of(std::string_view text) {
  Dims dims;
  for (const std::string_view part : list_parts(text)) {
    const std::int64_t size = whole_number<std::int64_t>(part).value_or(-1);
    if (size < 0 || dims.size() == kMostDims) return {};
    dims.push_back(size);
  }
  return dims;
}

double elements(const Dims& dims, std::size_t from = 0) {
  double size = 1;
  for (std::size_t i = from; i < dims.size(); ++i) size *= static_cast<double>(dims[i]);
  return size;
}

// The arguments of one call.
struct OpCall {
  std::vector<std::optional<Dims>> dims;
  std::vector<std::string_view> types, values;

  // nullptr: not a tensor, or of no size.
  const Dims* tensor(std::size_t at, std::size_t least_dims) const {
    if (at >= dims.size() || !dims[at] || dims[at]->size() < least_dims) return nullptr;
    return elements(*dims[at]) < static_cast<double>(kMostElements) ? &*dims[at] : nullptr;
  }
  std::string_view value(std::size_t at) const { return at < values.size() ? values[at] : std::string_view(); }
  int bytes(std::size_t at) const {
    if (at >= types.size()) return 0;
    constexpr std::string_view kSpace = "c10::";
    const std::string_view type = types[at];
    return type_bytes(type.starts_with(kSpace) ? type.substr(kSpace.size()) : type);
  }
};

std::int64_t whole_bytes(double bytes) {
  constexpr double kMost = 1e18;
  return bytes < kMost ? static_cast<std::int64_t>(bytes) : -1;
}

std::optional<OpWork> gemm(const OpCall& call, std::size_t first, bool transposed) {
  const Dims *a = call.tensor(first, transposed ? 1 : 2), *b = call.tensor(first + 1, 2);
  if (a == nullptr || b == nullptr) return {};
  const std::int64_t k = a->back(), n = transposed ? (*b)[b->size() - 2] : b->back();
  if (k != (transposed ? b->back() : (*b)[b->size() - 2]) || k == 0) return {};
  double out = elements(*a) / static_cast<double>(k) * static_cast<double>(n);
  // Each row of the operand with two dims belongs to one group of a grouped GEMM.
  if (!transposed && a->size() > b->size()) out /= static_cast<double>(std::max<std::int64_t>((*a)[0], 1));
  OpWork work{.flops = 2 * out * static_cast<double>(k)};
  if (const int size = call.bytes(first); size > 0)
    work.bytes = whole_bytes(size * (elements(*a) + elements(*b) + out));
  return work;
}

std::optional<OpWork> convolution(const OpCall& call) {
  const Dims *input = call.tensor(0, 3), *weight = call.tensor(1, 3);
  const std::string_view transposed = call.value(6);
  if (input == nullptr || weight == nullptr || input->size() != weight->size() || transposed.empty()) return {};
  const double of_weight = elements(*weight, 1);
  double out = 0, flops = 0;
  if (transposed == "True") {
    flops = 2 * elements(*input) * of_weight;
  } else {
    const auto stride = dims_of(call.value(3)), padding = dims_of(call.value(4)), dilation = dims_of(call.value(5));
    const std::size_t axes = input->size() - 2;
    if (!stride || !padding || !dilation || stride->empty() || padding->empty() || dilation->empty()) return {};
    const auto at = [](const Dims& of, std::size_t i) { return of[std::min(i, of.size() - 1)]; };
    out = static_cast<double>((*input)[0]) * static_cast<double>((*weight)[0]);
    for (std::size_t i = 0; i < axes; ++i) {
      const std::int64_t reach = at(*dilation, i) * ((*weight)[i + 2] - 1) + 1;
      const std::int64_t wide = (*input)[i + 2] + 2 * at(*padding, i) - reach;
      if (at(*stride, i) <= 0 || wide < 0) return {};
      out *= static_cast<double>(wide / at(*stride, i) + 1);
    }
    flops = 2 * out * of_weight;
  }
  OpWork work{.flops = flops};
  if (const int size = call.bytes(0); size > 0 && out > 0)
    work.bytes = whole_bytes(size * (elements(*input) + elements(*weight) + out));
  return work;
}

std::optional<OpWork> convolution_backward(const OpCall& call) {
  const Dims *gradient = call.tensor(0, 3), *input = call.tensor(1, 3), *weight = call.tensor(2, 3);
  const std::vector<std::string_view> mask = list_parts(call.value(10));
  if (gradient == nullptr || input == nullptr || weight == nullptr || mask.size() < 2) return {};
  const double one = 2 * elements(call.value(7) == "True" ? *input : *gradient) * elements(*weight, 1);
  return OpWork{.flops = one * ((mask[0] == "True" ? 1 : 0) + (mask[1] == "True" ? 1 : 0))};
}

// Scores that are computed again in the backward do not count.
std::optional<OpWork> attention(const OpCall& call, const FormulaRow& row) {
  const Dims *query = call.tensor(row.first, 4), *key = call.tensor(row.first + 1U, 4);
  const Dims* value = call.tensor(row.first + 2U, 4);
  const std::string_view causal = call.value(row.causal);
  if (query == nullptr || key == nullptr || value == nullptr || (causal != "True" && causal != "False")) return {};
  const auto at = [](const Dims& dims, std::size_t i) { return static_cast<double>(dims[i]); };
  const double rows = at(*query, 2), columns = at(*key, 2), square = std::min(rows, columns);
  const double pairs =
      causal == "False" ? rows * columns : square * (square + 1) / 2 + std::max(0.0, rows - columns) * columns;
  const double forward = 2 * at(*query, 0) * at(*query, 1) * pairs * (at(*query, 3) + at(*value, 3));
  OpWork work{.flops = row.formula == Formula::attention ? forward : 2 * forward};
  if (const int size = call.bytes(row.first); size > 0 && row.formula == Formula::attention)
    work.bytes = whole_bytes(size * (2 * elements(*query) + elements(*key) + elements(*value)));
  return work;
}

std::optional<OpWork> moves(const OpCall& call, bool is_copy) {
  double bytes = 0, largest = 0;
  for (std::size_t i = 0; i < call.dims.size() && !(is_copy && i == 2); ++i) {
    const Dims* tensor = call.tensor(i, 1);
    if (tensor == nullptr || call.bytes(i) == 0) continue;
    const double of = call.bytes(i) * elements(*tensor);
    bytes += of;
    largest = std::max(largest, of);
  }
  if (bytes == 0) return {};
  return OpWork{.bytes = whole_bytes(bytes + (is_copy ? 0 : largest))};
}

}  // namespace

bool has_formula(std::string_view op) { return formula_of(op) != nullptr; }

std::optional<OpWork> op_work(std::string_view op, std::string_view dims, std::string_view types,
                              std::string_view concrete) {
  const FormulaRow* row = formula_of(op);
  if (row == nullptr || dims.empty()) return {};
  OpCall call{.dims = {}, .types = list_parts(types), .values = list_parts(concrete)};
  for (const std::string_view part : list_parts(dims)) call.dims.push_back(dims_of(part));
  std::optional<OpWork> work;
  switch (row->formula) {
    case Formula::gemm:
    case Formula::linear: work = gemm(call, row->first, row->formula == Formula::linear); break;
    case Formula::convolution: work = convolution(call); break;
    case Formula::convolution_backward: work = convolution_backward(call); break;
    case Formula::attention:
    case Formula::attention_backward: work = attention(call, *row); break;
    case Formula::elementwise:
    case Formula::copy: work = moves(call, row->formula == Formula::copy); break;
  }
  if (work && row->first < call.types.size()) work->type = call.types[row->first];
  return work;
}

}  // namespace ms::tracepp
