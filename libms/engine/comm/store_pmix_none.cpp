// The implementation of store_pmix.h in a build without PMIx (MS_PMIX=OFF); store_pmix.cpp is the other one.
#include "comm/store_pmix.h"

namespace ms::comm {

std::unique_ptr<PmixStore> open_pmix_store(int, const FirstCause&) { return nullptr; }
void pmix_barrier(std::chrono::milliseconds) {}

}  // namespace ms::comm
