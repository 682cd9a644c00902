/* What MPI defines as macros: values that differ between Open MPI and MPICH and that no binding sees. */

#include <mpi.h>
#if defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

/* Says to a collective that the numbers to be sent lie where the result goes. */
void *hpcsweep_mpi_in_place(void) { return MPI_IN_PLACE; }

/* Whether this library reads and writes the memory of NVIDIA's GPUs itself: 1, 0, or -1 where it has no
 * way of saying so. */
int hpcsweep_mpi_cuda_aware(void) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() ? 1 : 0;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  int is_supported = 0;
  if (MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &is_supported) != MPI_SUCCESS) {
    return -1;
  }
  return is_supported ? 1 : 0;
#else
  return -1;
#endif
}
