// The rendezvous store: small values by name, put by one rank and read by others. PMIx under mpirun and srun, messages
// where there is MPI and no PMIx, memory for ranks that are threads. A name is published once by a rank and then stays:
// a second value under the same name may or may not be seen.
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
  // Publishes a value of this rank, any bytes, under a name without a zero byte. Visible to others, and to this rank,
  // after commit(). Larger than the limits above: Error("comm.store", bug).
  virtual void put(std::string_view key, std::string_view value) = 0;
  virtual void commit() = 0;
  // The value that `rank` published, or will: waits until the deadline, then Error("comm.store", peer) names the rank
  // and the key. Where the world stops meanwhile, throws what its operations fail with.
  virtual std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) = 0;
};

// What every store refuses alike, and says alike.
void check_publishable(std::string_view key, std::string_view value);
Error store_deadline_error(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline);

}  // namespace ms::comm
