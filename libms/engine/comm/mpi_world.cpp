// A World whose ranks are processes, over the service thread that owns MPI.
#include "comm/mpi_world.h"

#include "base/log.h"
#include "comm/mpi_service.h"
#include "comm/nccl_plugin.h"
#include "comm/self_communicator.h"
#include "comm/store_pmix.h"
#include "slurm/launch.h"

namespace ms::comm {
namespace {

class MpiWorld final : public World {
 public:
  MpiWorld(std::shared_ptr<MpiService> service, std::chrono::milliseconds deadline, StoreChoice choice)
      : service_(std::move(service)),
        deadline_(deadline),
        memory_store_(service_->rank(), service_->table(),
                      [this](MemoryStore::Values values) { service_->publish(std::move(values)); }) {
    if (choice == StoreChoice::automatic) pmix_ = open_pmix_store(service_->rank(), service_->cause());
    log::debug("comm", "key-value store: {}", pmix_ ? "PMIx" : "MPI messages");
  }
  ~MpiWorld() override {
    // The process is about to exit, and NCCL may wait forever for lost peers: it is leaked.
    if (service_->cause().stopped()) static_cast<void>(nccl_.release());
    nccl_.reset();
    service_->shutdown();
  }

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return service_->rank(); }
  int size() const override { return service_->size(); }
  int ranks_on_node() const override { return static_cast<int>(node_ranks().size()); }
  std::string node(int rank) const override { return service_->process(rank).host; }
  int pid(int rank) const override {
    const ProcessId& other = service_->process(rank);
    return same_host(other, service_->process(this->rank())) ? static_cast<int>(other.pid) : 0;
  }
  std::vector<int> node_ranks() const override { return service_->node_ranks(); }
  Patience& patience() override { return service_->patience(); }
  Store& store() override { return pmix_ ? static_cast<Store&>(*pmix_) : memory_store_; }
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override {
    if (group.size() == 1) return std::make_unique<SelfCommunicator>(group, rank(), stream);
    if (stream.device().kind() != "cuda") return make_exchange_communicator(service_, group, stream);
    if (!nccl_) nccl_ = make_nccl(service_, store(), deadline_);
    return nccl_->open(group, stream);
  }
  void abort(const Error& cause) noexcept override {
    service_->abort(cause);
    service_->wait_until_notified();
  }
  std::optional<Cause> cause() const override { return service_->cause().get(); }
  void before_stop(Witness witness) override { service_->cause().before_stop(std::move(witness)); }
  void close() override {
    if (nccl_) nccl_->close();  // before other ranks abort their NCCL
    service_->close();
    if (pmix_) pmix_->close();  // all ranks have closed: none reads the store any more
  }

 private:
  std::shared_ptr<MpiService> service_;
  std::chrono::milliseconds deadline_;
  MemoryStore memory_store_;
  std::unique_ptr<PmixStore> pmix_;  // null: the store is memory_store_
  std::unique_ptr<Nccl> nccl_;       // null: no GPU group was opened
};

}  // namespace

bool mpi_built_in() { return true; }

std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline, StoreChoice store) {
  const slurm::Launch launch = slurm::this_launch();
  if (launch.size > 1 && !launch.pmix) {
    throw user_error(
        "comm.mpi",
        fmt::format("{} started {} processes without PMIx: they cannot find each other", launch.launcher, launch.size),
        "srun needs --mpi=pmix, or MpiDefault=pmix in slurm.conf");
  }
  return std::make_unique<MpiWorld>(MpiService::start(deadline), deadline, store);
}

}  // namespace ms::comm
