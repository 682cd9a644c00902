//! What may befall any sweep: damage, kills, full disks, other users, too little memory.

mod access;
mod damage;
mod identity;
mod kill;
mod kinds;
mod memory;
mod readers;
mod stopped;
mod strangers;
mod suspended;
mod threads;
mod verify;
