// The key-value store through which ranks find each other: small values that one rank puts and others get. Kept by PMIx
// under mpirun and srun, sent by MPI messages where there is MPI and no PMIx, and kept in memory for ranks as threads.
// A rank publishes a key once: readers may or may not see a second value of the same key.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ms::comm {

inline constexpr std::size_t kMaxStoreKeyBytes = 255;
inline constexpr std::size_t kMaxStoreValueBytes = 32 << 10;

class Store {
 public:
  virtual ~Store() = default;
  // Puts a value of this rank, of any bytes, under a key without a zero byte. Visible to all ranks, this one included,
  // after commit(). Throws Error("comm.store", bug) above the limits.
  virtual void put(std::string_view key, std::string_view value) = 0;
  virtual void commit() = 0;
  // Returns the value that `rank` publishes under `key`; waits for it until the deadline, then throws
  // Error("comm.store", peer), which names the rank and the key. If the world stops meanwhile, throws the error that
  // its operations fail with.
  virtual std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) = 0;
};

// The checks and the error that all implementations share.
void check_publishable(std::string_view key, std::string_view value);
Error store_deadline_error(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline);

}  // namespace ms::comm
