// Interprets names in traces of other programs: collectives, kernels, data types, files. Pure; used by the readers of
// those formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// The name of ms-tracepp's own export, which is not read back because it lacks information.
inline constexpr std::string_view kExportWriter = "ms-tracepp";

// Small letters and digits only: "_allgather_base" and "AllGather" begin alike. Kernels' names go on for kilobytes, and
// say nothing more: only a beginning.
std::string plain_name(std::string_view name);
// "allreduce", "nccl:_reduce_scatter_base", "ncclDevKernel_AllGather_RING_LL(...)"; other_message where it does not
// say.
Kind comm_kind(std::string_view name);
// How an event of a profiler of devices is to be taken, by its category, or by the name of its process where it has
// none. `ignored`: on a device, and no work of it, such as waits and marks.
enum class EventRow : std::uint8_t { unknown, host, host_operator, work, ignored, communication };
EventRow row_of_category(std::string_view category);
EventRow row_of_process(std::string_view name);
// Returns whether a kernel communicates, by how libraries name theirs: NCCL, RCCL, oneCCL, MSCCL(++), HCCL and others.
// `thorough`: also those whose name tells it in its middle.
bool is_comm_kernel(std::string_view name, bool thorough = true);
// A kernel of a GPU: "flash_fwd_kernel" -> attention. other_compute where it does not say.
Kind kernel_kind(std::string_view name);
// An annotation or a Python function on the host: data_wait of a data loader, save of a checkpoint that is written,
// else other. Recomputing activations is called checkpoint too, and is other.
Kind host_kind(std::string_view name);
// Returns whether a function or an annotation compiles: torch.compile, Triton, C++ extensions.
bool compiles(std::string_view name);
// Bytes of "BFloat16", "float32", "Long"; 0: not known.
int type_bytes(std::string_view type);
// By how frameworks call their process groups: "TENSOR_MODEL_PARALLEL_GROUP", "mesh_dp", "default_pg".
GroupAxis axis_of_description(std::string_view description);
// "[0, 1, 2]" -> 0, 1, 2. Nothing where it is anything else, or abbreviated.
std::vector<int> parse_ranks(std::string_view text);

// The rank a file is of, by its name: behind the last "rank", or at the end: "trace_rank3.json.gz", "dump_12".
std::optional<int> rank_of_file(std::string_view path);
// "rank 12 ..." -> 12: processes that are ranks. Otherwise -1.
int rank_of_process(const std::string& name);
// "node7_4711.1700000000000.pt.trace.json.gz" -> "node7": what torch.profiler makes of a host; empty: not so named.
std::string host_of_file(std::string_view path);

}  // namespace ms::tracepp
