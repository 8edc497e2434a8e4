// Ranks as processes: the service thread that owns MPI, seen as a World.
#include "comm/mpi_world.h"

#include "base/log.h"
#include "comm/launch.h"
#include "comm/lonely_communicator.h"
#include "comm/mpi_service.h"
#include "comm/nccl_door.h"
#include "comm/store_pmix.h"

namespace ms::comm {
namespace {

class MpiWorld final : public World {
 public:
  MpiWorld(std::shared_ptr<MpiService> service, std::chrono::milliseconds deadline, StoreChoice choice)
      : service_(std::move(service)),
        deadline_(deadline),
        messages_(service_->rank(), service_->board(),
                  [this](BoardStore::Values values) { service_->publish(std::move(values)); }) {
    if (choice == StoreChoice::automatic) pmix_ = open_pmix_store(service_->rank(), service_->cause());
    log::debug("comm", "rendezvous store: {}", pmix_ ? "PMIx" : "messages");
  }
  ~MpiWorld() override {
    // The process ends, and what NCCL waits for may never come.
    if (service_->cause().stopped()) static_cast<void>(nccl_.release());
    nccl_.reset();
    service_->leave();
  }

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return service_->rank(); }
  int size() const override { return service_->size(); }
  int ranks_on_node() const override { return service_->ranks_on_node(); }
  std::string node(int rank) const override { return service_->node(rank); }
  Store& store() override { return pmix_ ? static_cast<Store&>(*pmix_) : messages_; }
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override {
    if (group.size() == 1) return std::make_unique<LonelyCommunicator>(group, rank(), stream);
    if (stream.device().kind() != "cuda") return make_exchange_communicator(service_, group, stream);
    if (!nccl_) nccl_ = make_nccl(service_, store(), deadline_);
    return nccl_->open(group, stream);
  }
  void abort(const Error& cause) noexcept override {
    service_->abort(cause);
    service_->wait_until_told();
  }
  std::optional<Cause> cause() const override { return service_->cause().get(); }
  void close() override {
    if (nccl_) nccl_->close();  // whoever is out first aborts its NCCL
    service_->close();
    if (pmix_) pmix_->close();  // everybody has been met: nobody asks for a value any more
  }

 private:
  std::shared_ptr<MpiService> service_;
  std::chrono::milliseconds deadline_;
  BoardStore messages_;
  std::unique_ptr<PmixStore> pmix_;  // null: messages
  std::unique_ptr<Nccl> nccl_;       // null: no group of GPUs has been opened
};

}  // namespace

bool mpi_built_in() { return true; }

std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline, StoreChoice store) {
  const Launch launch = this_launch();
  if (launch.size > 1 && !launch.pmix) {
    throw user_error(
        "comm.mpi",
        fmt::format("{} started {} processes without PMIx: they cannot find each other", launch.launcher, launch.size),
        "srun needs --mpi=pmix, or MpiDefault=pmix in slurm.conf");
  }
  return std::make_unique<MpiWorld>(MpiService::start(deadline), deadline, store);
}

}  // namespace ms::comm
