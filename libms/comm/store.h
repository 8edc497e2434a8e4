// The rendezvous store: small values by name, put by one rank and read by others. PMIx under mpirun and srun, memory
// for ranks that are threads.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace ms::comm {

class Store {
 public:
  virtual ~Store() = default;
  // Publishes a value of this rank. Visible to others after commit().
  virtual void put(std::string_view key, std::string_view value) = 0;
  virtual void commit() = 0;
  // The value that `rank` published, waiting for it until the deadline; Error("comm.store", peer) names the rank and
  // key.
  virtual std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) = 0;
};

}  // namespace ms::comm
