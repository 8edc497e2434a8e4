// The attributes that descriptors accept, and the checks that a finished descriptor is complete and consistent.
#include "cudnn_descriptor.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>

namespace ms::emulated {
namespace {

constexpr std::int64_t kMostElements = 1 << 16;

#define RULE(of, name, type, most, needed) \
  Rule { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, most, needed, #name }
constexpr Rule kRules[] = {
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, CUDNN_DIM_MAX, true),
    RULE(TENSOR, TENSOR_STRIDES, INT64, CUDNN_DIM_MAX, true),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
    RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    RULE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    RULE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, true),
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, true),
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, true),
    RULE(POINTWISE, POINTWISE_AXIS, INT64, 1, false),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, false),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1, false),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, true),
    RULE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, true),
    RULE(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, kMostElements, true),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, false),
    RULE(DEVICEPROP, DEVICEPROP_JSON_REPRESENTATION, CHAR, kMostElements, true),
    RULE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, true),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
    RULE(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1, false),
    RULE(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, true),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, true),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, true),
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, kMostElements, true),
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, kMostElements, true),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, true),
};
#undef RULE

// Returns strides and dimensions, the densest first, with dimensions that continue each other merged.
std::vector<std::pair<std::int64_t, std::int64_t>> layout_of(const Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all, layout;
  for (std::size_t i = 0; i < tensor.dims.size(); ++i)
    if (tensor.dims[i] > 1) all.emplace_back(tensor.strides[i], tensor.dims[i]);
  std::ranges::sort(all);
  for (const auto& [stride, dim] : all) {
    if (!layout.empty() && stride == layout.back().first * layout.back().second)
      layout.back().second *= dim;
    else
      layout.emplace_back(stride, dim);
  }
  return layout;
}

std::string words(const Dims& dims) {
  std::string all;
  for (const std::int64_t dim : dims) all += (all.empty() ? "" : "x") + std::to_string(dim);
  return all;
}

void finish_tensor(Descriptor& d) {
  Tensor t{.id = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
           .alignment = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
           .type = d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
           .dims = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
           .strides = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
           .is_virtual = d.flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
           .by_value = d.flag(CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
  const std::string name = fmt::format("tensor {} of {} by {}", t.id, words(t.dims), words(t.strides));
  require(t.type == CUDNN_DATA_FLOAT || t.type == CUDNN_DATA_BFLOAT16 || t.type == CUDNN_DATA_INT32 ||
              t.type == CUDNN_DATA_BOOLEAN,
          fmt::format("{}: data type {}", name, int{t.type}), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  require(t.dims.size() == t.strides.size(), name + ": as many strides as dimensions");
  require(std::ranges::all_of(t.dims, [](auto n) { return n > 0; }), name + ": a dimension without elements");
  require(std::ranges::all_of(t.strides, [](auto n) { return n > 0; }), name + ": a stride that is not positive");
  require(t.alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(t.alignment)) &&
              static_cast<std::size_t>(t.alignment) >= t.element(),
          fmt::format("{}: alignment {}", name, t.alignment));
  std::int64_t reach = 0;
  for (const auto& [stride, dim] : layout_of(t)) {
    require(stride > reach, name + ": elements that share memory");
    reach += (dim - 1) * stride;
  }
  require(!(t.is_virtual && t.by_value), name + ": virtual and by value");
  require(!t.by_value || (t.extent() == sizeof(float) && t.type == CUDNN_DATA_FLOAT),
          name + ": by value, but not one f32", CUDNN_STATUS_NOT_SUPPORTED);
  d.tensor = std::make_shared<const Tensor>(std::move(t));
}

std::string words(const Operation& op) {
  std::string tensors;
  for (const TensorPtr& tensor : op.inputs()) tensors += fmt::format("{} {}, ", tensor->id, words(tensor->dims));
  return fmt::format("operation of type {} (mode {}) on {}giving {} {}", int{op.type}, int{op.mode}, tensors, op.y->id,
                     words(op.y->dims));
}

// Tells whether each dimension equals the other's or divides it, as for heads that groups of heads share.
bool divides(const Dims& small, const Dims& large, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (large[i] % small[i] != 0) return false;
  return true;
}
bool broadcasts(const Dims& small, const Dims& large) {
  for (std::size_t i = 0; i < small.size(); ++i)
    if (small[i] != large[i] && small[i] != 1) return false;
  return true;
}
void require_f32(const Descriptor& part, cudnnBackendAttributeName_t name) {
  require(part.one<cudnnDataType_t>(name) == CUDNN_DATA_FLOAT, "a computation that is not in f32",
          CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}
bool is_number(const Tensor& tensor) { return tensor.type == CUDNN_DATA_FLOAT || tensor.type == CUDNN_DATA_BFLOAT16; }

void check_matmul(const Operation& op) {
  const Dims &a = op.x->dims, &b = op.b->dims, &c = op.y->dims;
  const std::size_t batches = c.size() < 3 ? 0 : c.size() - 2;
  require(batches > 0, words(op) + ": no dimension of batches", CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
  bool fits = a[batches] == c[batches] && b[batches + 1] == c[batches + 1] && a[batches + 1] == b[batches] &&
              divides(a, c, batches) && divides(b, c, batches);
  for (std::size_t i = 0; i < batches; ++i) fits = fits && std::max(a[i], b[i]) == c[i];
  require(fits, words(op) + ": the shapes do not fit", CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  require(op.x->type == op.b->type && is_number(*op.x) && is_number(*op.y), words(op) + ": the data types do not fit",
          CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}

void check_pointwise(Operation& op, const Descriptor& part) {
  const bool index = op.mode == CUDNN_POINTWISE_GEN_INDEX, select = op.mode == CUDNN_POINTWISE_BINARY_SELECT,
             compare = op.mode >= CUDNN_POINTWISE_CMP_EQ && op.mode <= CUDNN_POINTWISE_CMP_LE;
  const bool pair = op.mode == CUDNN_POINTWISE_ADD || op.mode == CUDNN_POINTWISE_SUB ||
                    op.mode == CUDNN_POINTWISE_MUL || op.mode == CUDNN_POINTWISE_DIV || compare;
  require(index || select || pair || op.mode == CUDNN_POINTWISE_EXP || op.mode == CUDNN_POINTWISE_LOG ||
              op.mode == CUDNN_POINTWISE_IDENTITY,
          words(op) + ": this mode is not emulated", CUDNN_STATUS_NOT_SUPPORTED);
  require((op.b != nullptr) == (pair || select) && (op.t != nullptr) == select,
          words(op) + ": too few or many tensors");
  Dims largest = op.x->dims;
  for (const TensorPtr& tensor : op.inputs()) {
    require(broadcasts(tensor->dims, op.y->dims), words(op) + ": the shapes do not fit",
            CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    for (std::size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], tensor->dims[i]);
  }
  require(largest == op.y->dims, words(op) + ": a result larger than what it is made of",
          CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  require(part.has(CUDNN_ATTR_POINTWISE_AXIS) == index,
          words(op) + ": an axis is for an index, and an index needs one");
  if (index) {
    const auto axis = part.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
    require(axis >= 0 && axis < static_cast<std::int64_t>(op.y->dims.size()),
            fmt::format("{}: axis {}", words(op), axis), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    op.axis = static_cast<std::size_t>(axis);
  }
  const auto is = [](const TensorPtr& tensor, cudnnDataType_t type) { return tensor->type == type; };
  bool fits = index ? is(op.y, CUDNN_DATA_INT32) : compare ? is(op.y, CUDNN_DATA_BOOLEAN) : is_number(*op.y);
  if (select) fits = fits && is(op.t, CUDNN_DATA_BOOLEAN);
  fits = fits && !is(op.x, CUDNN_DATA_BOOLEAN) && (op.b == nullptr || !is(op.b, CUDNN_DATA_BOOLEAN));
  require(fits, words(op) + ": the data types do not fit", CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}

void check_reduction(const Operation& op) {
  require(op.reduction == CUDNN_REDUCE_TENSOR_ADD || op.reduction == CUDNN_REDUCE_TENSOR_MAX,
          fmt::format("{}: reduction {} is not emulated", words(op), int{op.reduction}), CUDNN_STATUS_NOT_SUPPORTED);
  require(divides(op.y->dims, op.x->dims, op.y->dims.size()), words(op) + ": the shapes do not fit",
          CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  require(is_number(*op.x) && is_number(*op.y), words(op) + ": the data types do not fit",
          CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}

void finish_operation(Descriptor& d) {
  Operation op;
  op.type = d.type;
  if (d.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    op.x = d.tensor_of(CUDNN_ATTR_OPERATION_MATMUL_ADESC), op.b = d.tensor_of(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    op.y = d.tensor_of(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    require_f32(d.part(CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR), CUDNN_ATTR_MATMUL_COMP_TYPE);
  } else if (d.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    op.x = d.tensor_of(CUDNN_ATTR_OPERATION_REDUCTION_XDESC), op.y = d.tensor_of(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const Descriptor& part = d.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    op.reduction = part.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    require_f32(part, CUDNN_ATTR_REDUCTION_COMP_TYPE);
  } else if (d.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
    op.x = d.tensor_of(CUDNN_ATTR_OPERATION_RESHAPE_XDESC), op.y = d.tensor_of(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  } else {
    op.x = d.tensor_of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), op.b = d.tensor_of(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    op.t = d.tensor_of(CUDNN_ATTR_OPERATION_POINTWISE_TDESC), op.y = d.tensor_of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    op.mode = d.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                  .one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  }
  for (const TensorPtr& tensor : op.inputs()) {
    require(tensor->dims.size() == op.y->dims.size(), words(op) + ": as many dimensions each",
            CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    require(tensor->id != op.y->id, words(op) + ": in place", CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  }
  require(!op.y->by_value, words(op) + ": a result by value");
  if (d.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    check_matmul(op);
  } else if (d.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    check_reduction(op);
  } else if (d.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
    require(layout_of(*op.x) == layout_of(*op.y) && is_number(*op.x) && is_number(*op.y),
            words(op) + ": not a view of the same elements", CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  } else {
    const Descriptor& part = d.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    require_f32(part, CUDNN_ATTR_POINTWISE_MATH_PREC);
    check_pointwise(op, part);
  }
  d.operation = std::make_shared<const Operation>(std::move(op));
}

// Operations run in the order in which they were added, so everything that one reads must already exist.
void finish_graph(Descriptor& d) {
  Program program;
  std::set<std::int64_t> read;
  const auto know = [&](const TensorPtr& tensor) {
    const auto& [place, is_new] = program.tensors.emplace(tensor->id, tensor);
    require(is_new || place->second == tensor, fmt::format("two tensors with the id {}", tensor->id),
            CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  };
  for (const auto& part : d.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    require(part->operation != nullptr, "a graph of what is not an operation", CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    const Operation& op = program.operations.emplace_back(*part->operation);
    for (const TensorPtr& tensor : op.inputs()) {
      know(tensor);
      require(!tensor->is_virtual || program.written.contains(tensor->id),
              fmt::format("{}: nobody wrote {} before", words(op), tensor->id));
      read.insert(tensor->id);
    }
    know(op.y);
    require(!read.contains(op.y->id), fmt::format("{}: {} was read before", words(op), op.y->id));
    require(program.written.insert(op.y->id).second, fmt::format("{}: {} was written before", words(op), op.y->id));
  }
  for (auto op = program.operations.rbegin(); op != program.operations.rend(); ++op)
    for (const TensorPtr& tensor : op->inputs())
      if (tensor->is_virtual && read.erase(tensor->id) == 1) op->last_of.push_back(tensor->id);
  std::set<std::int64_t> used;
  for (const Operation& op : program.operations) used.insert(op.last_of.begin(), op.last_of.end());
  for (const auto& [id, tensor] : program.tensors)
    require(!tensor->is_virtual || used.contains(id), fmt::format("virtual tensor {} is of no use to anybody", id));
  if (d.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) handles.at(d.one<void*>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), "a handle");
  d.program = std::make_shared<const Program>(std::move(program));
}

void finish_heuristic(Descriptor& d) {
  const Descriptor& graph = d.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const bool told = d.has(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (told) d.part(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  require(told || graph.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE),
          "engines for no device: neither a handle nor properties");
  d.program = graph.program;
}

void finish_plan(Descriptor& d) {
  handles.at(d.one<void*>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), "a handle");
  d.program = d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).program;
}

void finish_pack(Descriptor& d) {
  const auto ids = d.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = d.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  require(ids.size() == pointers.size(), fmt::format("{} tensors with {} pointers", ids.size(), pointers.size()));
  require(std::set(ids.begin(), ids.end()).size() == ids.size(), "one id twice",
          CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
}

}  // namespace

const Rule* rule_for(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name) {
  const auto* rule = std::ranges::find_if(kRules, [&](const Rule& each) { return each.of == of && each.name == name; });
  return rule == std::end(kRules) ? nullptr : rule;
}

void finish(Descriptor& d) {
  require(!d.finished, "finished already");
  bool known = false;
  for (const Rule& rule : kRules) {
    known = known || rule.of == d.type;
    require(rule.of != d.type || !rule.needed || d.has(rule.name), fmt::format("{} is not set", rule.words));
  }
  require(known, fmt::format("descriptors of type {} are not emulated", int{d.type}), CUDNN_STATUS_NOT_SUPPORTED);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: finish_tensor(d); break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: finish_operation(d); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: finish_graph(d); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: finish_heuristic(d); break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: finish_plan(d); break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: finish_pack(d); break;
    default: break;
  }
  d.finished = true;
}

}  // namespace ms::emulated
