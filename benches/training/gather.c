/* MPI_Allgather of bytes into a buffer that is kept, on orders from a socket: what no sync can beat.
 * An order is "0 BYTES CALLS"; the answer the seconds of one call, the mean. It asks for the thread level of
 * every program that has threads, as the worker does. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int level, size, end = socket(AF_UNIX, SOCK_STREAM, 0);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
  if (connect(end, (struct sockaddr *)&address, sizeof address)) {
    perror("no socket to the bench");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  FILE *orders = fdopen(end, "r");
  size_t bytes, calls, room = 0;
  char *mine = NULL, *all = NULL;
  while (fscanf(orders, " 0 %zu %zu", &bytes, &calls) == 2) {
    if (bytes != room) {
      free(mine);
      free(all);
      mine = malloc(bytes);
      all = malloc(bytes * size);
      memset(mine, 1, bytes);
      memset(all, 1, bytes * size);
      room = bytes;
    }
    for (size_t i = 0; i < (calls + 9) / 10; i++)
      MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (size_t i = 0; i < calls; i++)
      MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD);
    dprintf(end, "%e\n", (MPI_Wtime() - begin) / calls);
  }
  return MPI_Finalize();
}
