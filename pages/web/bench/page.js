import WORKER from "./worker.txt";
export { WORKER };
