// The entries of one Flight Recorder dump, and what they mean together: batches, which operations ended and began, and
// what a dump that has lost entries still tells. flight_recorder_reader.cpp reads them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ms::tracepp {

struct RecorderEntry {
  std::string operation, group, description, input_sizes, output_sizes, input_types, output_types, state;
  std::string stack;  // of Python, "load (loader.py:7) < main (train.py:3)"; empty: not said, or the entry has ended
  std::int64_t sequence = -1, p2p_sequence = -1, group_id = -1, record = -1;  // -1: not said
  std::int64_t timeout_ms = 0;
  std::int64_t created_ns = 0, started_ns = 0, completed_ns = 0;
  int batch = -1;  // entries of one batch share it; -1: issued by itself
  bool is_retired = false, is_p2p = false;
  std::string last_field;  // the name of the last one that was read
};

// The numbers of the newest operations of a group, by its id in the file; -1: none, or not said. Those of sends and
// recvs, which have their own, come in place of a collective's.
struct RecorderStatus {
  std::int64_t enqueued = -1, completed = -1;
};
using RecorderStatuses = std::map<std::int64_t, RecorderStatus>;

// Removes the last entry of a dump that is cut if the cut lies in it: it has no state, or ends with another field than
// the one before. One that still runs has fewer fields, but the same last one.
void drop_unfinished(std::vector<RecorderEntry>& entries);

// NCCL records the calls of a batch (batch_isend_irecv, a coalescing manager) without state, and then an entry without
// tensors for all of them, whose state is known. Gives the calls its state, merges the collectives of a batch, which
// share a number, into one entry, and removes the closing entry unless the calls are missing.
void fold_batches(std::vector<RecorderEntry>& entries);

// Marks the sends and recvs of batches that ended where a dump lists only what did not: they never have a state, and
// the entry behind them, which would have it, is left out.
void end_unlisted(std::vector<RecorderEntry>& entries, const RecorderStatuses& statuses);

// Marks the operations that ended although their state does not say so. Returns whether some of them may have failed.
bool find_ended(std::vector<RecorderEntry>& entries, const RecorderStatuses& statuses);

// Marks the first operation of a backend that did not end as begun, with those of its batch, if the backend does not
// show what began: gloo never does, NCCL with TORCH_NCCL_ENABLE_TIMING only.
void find_begun(std::vector<RecorderEntry>& entries);

// Returns whether torchcomms wrote the entries: it describes a group by its backend. Its recorder calls an operation
// completed before it is, so that only what is retired has ended.
bool is_of_torchcomms(const std::vector<RecorderEntry>& entries);

// Marks what torchcomms retired as completed, and nothing else.
void end_retired(std::vector<RecorderEntry>& entries);

// Returns whether a recorder counts all calls of its process in one sequence, sends and recvs included, and not those
// of each group. `entries`: in order of record.
bool counts_process(const std::vector<RecorderEntry>& entries);

// Returns whether a rank issued operations that the dump no longer shows: its buffer was full, it lists only what did
// not end, or it was reset. `of_process`: numbers count all calls of the process.
bool lacks_entries(const std::vector<RecorderEntry>& entries, const RecorderStatuses& statuses, bool of_process);

// Returns the numbers of the newest collectives by the names of groups, as the statuses have them. `names`: all groups
// of the file. Groups with sends and recvs are left out.
std::map<std::string, std::int64_t> newest_numbers(const std::vector<RecorderEntry>& entries,
                                                   const RecorderStatuses& statuses, std::vector<std::string> names);

}  // namespace ms::tracepp
